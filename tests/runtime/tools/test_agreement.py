"""The table of tolerances: what passes, what fails, and with which reason."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.tools.agreement import Expected, OutputFacts, judge, judge_each, rule_for, worst
from runtime.tools.arithmetic import Arithmetic, arithmetic_of, keeps_state

FLOAT = OutputFacts("out")
INT8 = OutputFacts("out", scale=0.5, zero_point=-3)
FP32 = rule_for(Arithmetic.FLOAT, integer_path=True, precision="fp32")
FP16 = rule_for(Arithmetic.FLOAT, integer_path=False, precision="fp16")
EXACT = rule_for(Arithmetic.INTEGER, integer_path=True, precision="fp32")
COSINE = rule_for(Arithmetic.MIXED, integer_path=True, precision="fp32")
PEER = rule_for(Arithmetic.MIXED, integer_path=True, precision="fp32", has_peer=True)

R = np.linspace(-1, 1, 1000, dtype=np.float32)


def verdict(r, y, rule, facts=FLOAT):
    return judge(Expected([[r]], [facts]), [[y]], rule)


@pytest.mark.parametrize(
    ("arithmetic", "integer_path", "precision", "exact_reference", "has_peer", "kind", "tolerance"),
    [
        (Arithmetic.FLOAT, True, "fp32", True, True, "norm", 1e-4),
        (Arithmetic.FLOAT, False, "fp16", True, True, "norm", 2e-2),
        (Arithmetic.FLOAT, False, "bf16", True, True, "norm", 2e-2),
        (Arithmetic.INTEGER, True, "fp32", True, True, "bit_equal", 0.0),
        (Arithmetic.INTEGER, True, "fp32", False, False, "cosine", 0.98),
        (Arithmetic.INTEGER, False, "fp32", True, True, "peer", 1.5),
        (Arithmetic.INTEGER, False, "fp32", True, False, "cosine", 0.98),
        (Arithmetic.MIXED, True, "fp32", True, True, "peer", 1.5),
        (Arithmetic.MIXED, True, "fp32", False, True, "cosine", 0.98),
    ],
)
def test_each_pairing_has_its_rule(
    arithmetic, integer_path, precision, exact_reference, has_peer, kind, tolerance
):
    rule = rule_for(
        arithmetic,
        integer_path=integer_path,
        precision=precision,
        exact_reference=exact_reference,
        has_peer=has_peer,
    )
    assert (rule.kind, rule.tolerance) == (kind, tolerance)


def test_norm_rule_holds_up_to_its_tolerance():
    passed = verdict(R, R * np.float32(1 + 0.9e-4), FP32)
    assert (passed.verdict, passed.note) == ("pass", "")
    failed = verdict(R, R * np.float32(1 + 1.2e-4), FP32)
    assert failed.verdict == "fail"
    assert failed.rel_l2 == pytest.approx(1.2e-4, rel=0.01)
    assert "output 'out' of input set 0: |y-r|" in failed.note
    assert verdict(R, R * np.float32(1.015), FP16).verdict == "pass"
    assert verdict(R, R * np.float32(1.03), FP16).verdict == "fail"


def test_norm_rule_has_an_absolute_floor_for_outputs_near_zero():
    zeros = np.zeros(100, np.float32)
    assert verdict(zeros, zeros + np.float32(0.9e-6), FP32).verdict == "pass"
    assert verdict(zeros, zeros + np.float32(2e-6), FP32).verdict == "fail"


def test_bit_equal_rule_counts_the_different_values():
    r = np.arange(-100, 100, dtype=np.int8)
    y = r.copy()
    assert verdict(r, y, EXACT, INT8).verdict == "pass"
    y[7] += 1
    failed = verdict(r, y, EXACT, INT8)
    assert failed.verdict == "fail"
    assert failed.max_abs == pytest.approx(0.5)
    assert "1 of 200 values differ" in failed.note


def test_cosine_rule_compares_dequantised_values():
    shifted = OutputFacts("out", scale=0.5, zero_point=100)
    r = np.array([101, 99, 101, 99], np.int8)
    y = np.array([99, 101, 99, 101], np.int8)
    assert verdict(r, y, COSINE, shifted).cosine == pytest.approx(-1.0)
    assert verdict(r, y, COSINE, shifted).verdict == "fail"
    assert verdict(r, r, COSINE, shifted).verdict == "pass"


@pytest.mark.parametrize("rule", [FP32, FP16, EXACT, COSINE], ids=lambda rule: rule.kind)
@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
def test_wild_value_fails_where_the_reference_has_none(rule, wild):
    y = R.copy()
    y[3] = wild
    failed = verdict(R, y, rule)
    assert failed.verdict == "fail"
    assert "1 values are NaN or Inf" in failed.note


def test_wild_value_passes_where_the_reference_has_the_same():
    r, y = R.copy(), R.copy()
    r[3] = y[3] = np.nan
    r[4] = y[4] = -np.inf
    for rule in (FP32, EXACT, COSINE):
        assert verdict(r, y, rule).verdict == "pass"
    assert verdict(r, y, FP32).nonfinite == 2


@pytest.mark.parametrize(
    ("reference", "output"),
    [(np.inf, -np.inf), (np.inf, np.nan), (np.nan, np.inf), (np.nan, 0.0), (-np.inf, 1)],
)
@pytest.mark.parametrize("rule", [FP32, EXACT, COSINE], ids=lambda rule: rule.kind)
def test_wild_values_must_match_in_kind(rule, reference, output):
    r, y = R.copy(), R.copy()
    r[3], y[3] = reference, output
    assert verdict(r, y, rule).verdict == "fail"


@pytest.mark.parametrize("wild", [np.nan, np.inf])
def test_a_reference_without_a_finite_value_is_no_pass(wild):
    nothing = np.full(10, wild, np.float32)
    judged = verdict(nothing, nothing.copy(), FP32)
    assert judged.verdict is None
    assert "no finite value" in judged.note
    assert verdict(nothing, np.zeros(10, np.float32), FP32).verdict == "fail"


def test_a_reference_that_is_the_same_for_every_input_set_is_no_pass():
    expected = Expected([[R], [R]], [FLOAT])
    judged = judge(expected, [[R], [R]], FP32)
    assert judged.verdict is None
    assert "output 'out' is not judged: its reference is the same for every input set" in judged.note
    assert judge(expected, [[R], [-R]], FP32).verdict == "fail", "wrong is wrong"


def test_an_output_that_varies_decides_where_another_does_not():
    expected = Expected([[R, R], [R, -R]], [OutputFacts("anchors"), FLOAT])
    right = judge(expected, [[R, R], [R, -R]], FP32)
    assert right.verdict == "pass"
    assert "'anchors' is not judged" in right.note
    assert judge(expected, [[R, R], [R, R]], FP32).verdict == "fail"
    assert [one.verdict for one in judge_each(expected, [[R, R], [R, -R]], FP32)] == [None, "pass"]


def softmax(classes=1000):
    """A flat softmax, as an untrained classifier gives it."""
    values = np.random.default_rng(5).normal(0, 0.2, classes)
    return (np.exp(values) / np.exp(values).sum()).astype(np.float32)


LIES = {
    "constant": lambda r: np.full_like(r, r.mean()),
    "permuted": lambda r: np.random.default_rng(1).permutation(r),
    "zero": np.zeros_like,
    "another scale": lambda r: r * np.float32(1.1),
    "shifted": lambda r: np.roll(r, 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_flat_softmax_hides_no_lie(lie):
    """Beside its mean a flat softmax varies little: a plain cosine would pass every lie but zero."""
    r = softmax()
    x = (r * np.random.default_rng(2).normal(1, 0.002, r.size)).astype(np.float32)
    judged = judge(Expected([[r]], [FLOAT], [[x]]), [[LIES[lie](r)]], PEER)
    assert judged.verdict == "fail", judged
    if lie != "another scale":
        assert verdict(r, LIES[lie](r), COSINE).verdict == "fail"


def test_peer_rule_allows_half_as_much_again_as_the_peer_and_a_quantum():
    facts = OutputFacts("out", scale=0.1, zero_point=0)
    r = np.arange(-100, 100, dtype=np.int8)
    x = (r + 4).astype(np.int8)
    expected = Expected([[r]], [facts], [[x]])
    assert judge(expected, [[(r + 7).astype(np.int8)]], PEER).verdict == "pass"
    failed = judge(expected, [[(r + 8).astype(np.int8)]], PEER)
    assert failed.verdict == "fail"
    assert "XNNPACK" in failed.note
    assert failed.peer_rel_l2 == pytest.approx(4 / np.sqrt(np.mean(r.astype(float) ** 2)))


def test_the_peer_itself_passes_or_is_as_far_off_as_wrong_outputs_are():
    r = softmax()
    near = (r * np.random.default_rng(3).normal(1, 0.05, r.size)).astype(np.float32)
    assert judge(Expected([[r]], [FLOAT], [[near]]), [[near]], PEER).verdict == "pass"
    permuted = np.random.default_rng(3).permutation(r)
    lost = judge(Expected([[r]], [FLOAT], [[permuted]]), [[permuted]], PEER)
    assert lost.verdict is None
    assert lost.note == "output 'out' is not judged: it is as near to a constant as to the reference"


def hardly_varying(rng, change=0.01):
    """Two outputs that differ by less than the tolerance of fp16: those of a network that sees only noise."""
    r = rng.normal(0, 1, (2, 1, 1000)).astype(np.float32)
    return [[r[0]], [(r[0] + change * r[1]).astype(np.float32)]]


def test_an_output_within_its_tolerance_is_told_from_that_of_another_input_set():
    """A delegate that ignores its inputs would pass, as all sets lie within the tolerance of one another."""
    rng = np.random.default_rng(5)
    references = hardly_varying(rng)
    rounded = [[(r + rng.normal(0, 1e-3, r.shape)).astype(np.float32)] for (r,) in references]
    expected = Expected(references, [FLOAT])
    assert judge(expected, rounded, FP16).verdict == "pass"
    swapped = judge(expected, [references[1], references[0]], FP16)
    assert swapped.verdict is None
    assert "as near to another input set's output as to the reference" in swapped.note
    alone = judge(expected.only(0), [references[1]], FP16, varies=[True])
    assert alone.verdict is None, "one set alone is told from the others, too"


WAVE = (1 + 0.01 * np.sin(np.linspace(0, 2 * np.pi, 64, endpoint=False))).astype(np.float32).reshape(1, 64, 1)
"""An image of one row whose pixels differ by less than the tolerance of fp16."""


@pytest.mark.parametrize(
    ("r", "y", "decoy"),
    [
        (np.full((1, 4), 1e-9, np.float32), np.zeros((1, 4), np.float32), "zeros"),
        (np.linspace(1, 1.001, 64, dtype=np.float32), np.full(64, 1.0005, np.float32), "a constant"),
        (WAVE, np.roll(WAVE, 1, 1), "the reference shifted by one place"),
    ],
)
def test_an_output_that_could_as_well_be_a_wrong_one_is_not_judged(r, y, decoy):
    assert verdict(r, r, FP16).verdict == "pass"
    judged = verdict(r, y, FP16)
    assert judged.verdict is None
    assert f"as near to {decoy}" in judged.note


def test_a_wrong_scale_within_a_wide_bound_is_not_judged():
    r = np.abs(np.random.default_rng(6).normal(0, 1, (1, 500))).astype(np.float32)
    x = (r + np.random.default_rng(7).normal(0, 0.09, r.shape)).astype(np.float32)
    expected = Expected([[r]], [FLOAT], [[x]])
    assert judge(expected, [[x]], PEER).verdict == "pass"
    judged = judge(expected, [[(1.1 * r).astype(np.float32)]], PEER)
    assert judged.verdict is None
    assert "1.1 times the reference" in judged.note


def test_a_float_output_may_be_off_as_far_as_a_network_amplifies_the_rounding_of_xnnpack():
    noise = np.random.default_rng(8).normal(0, 1, R.shape)
    unit = noise / np.linalg.norm(noise) * np.linalg.norm(R)
    x, y, far = ((R + factor * unit).astype(np.float32) for factor in (3e-4, 4e-4, 5e-4))
    assert judge(Expected([[R]], [FLOAT], [[x]]), [[y]], FP32).verdict == "pass"
    assert judge(Expected([[R]], [FLOAT], [[x]]), [[far]], FP32).verdict == "fail"
    assert judge(Expected([[R]], [FLOAT], [[R]]), [[y]], FP32).verdict == "fail", "XNNPACK is exact here"
    lost = (R + 0.01 * unit).astype(np.float32)
    assert judge(Expected([[R]], [FLOAT], [[lost]]), [[lost]], FP32).verdict == "fail", "bounded"


def test_a_peer_that_is_not_finite_is_no_measure():
    expected = Expected([[R]], [FLOAT], [[np.full_like(R, np.nan)]])
    assert judge(expected, [[R]], PEER).verdict == "pass"
    assert judge(expected, [[-R]], PEER).verdict == "fail"


def test_figures_of_an_output():
    r = np.array([[0.0, 1.0], [2.0, 1.0]], np.float32)
    y = np.array([[0.0, 2.0], [2.0, 3.0]], np.float32)
    judged = judge(Expected([[r]], [FLOAT]), [[y]], FP32)
    assert (judged.max_abs, judged.mean_abs, judged.top1, judged.nonfinite) == (2.0, 0.75, 0.5, 0)


@pytest.mark.parametrize(
    "y", [R.astype(np.float64), R.reshape(10, 100), R[:-1]], ids=["dtype", "shape", "size"]
)
def test_wrong_shape_or_dtype_fails(y):
    failed = verdict(R, y, FP32)
    assert failed.verdict == "fail"
    assert "the reference has float32[1000]" in failed.note


def test_all_sets_and_outputs_are_judged_and_the_worst_is_told():
    good, bad = R, R * np.float32(1.5)
    expected = Expected([[R, R], [R, R]], [FLOAT, OutputFacts("second")])
    judged = judge(expected, [[good, good], [good, bad]], FP32)
    assert judged.verdict == "fail"
    assert "output 'second' of input set 1" in judged.note
    assert judged.max_abs == pytest.approx(0.5)


def test_missing_output_fails():
    assert judge(Expected([[R, R]], [FLOAT, FLOAT]), [[R]], FP32).verdict == "fail"


def test_worst_of_several_processes_fails_if_one_fails():
    good, bad = verdict(R, R, FP32), verdict(R, R * np.float32(2), FP32)
    assert worst([good, good]).verdict == "pass"
    assert worst([good, bad]) == worst([bad, good])
    assert worst([good, bad]).verdict == "fail"


SCALE = Quantization((0.1,), (0,))


def tensor(index, kind=TensorType.FLOAT32, constant=False, quantized=False):
    data = memoryview(bytes(64)) if constant else None
    return Tensor(index, f"t{index}", kind, (4,), data=data, quantization=SCALE if quantized else None)


def model(tensors, operators):
    return Model(3, "", (Subgraph(0, "main", tuple(tensors), (0,), (len(tensors) - 1,), tuple(operators)),))


def test_float_model_with_unpacked_weights_is_float():
    made = model(
        [tensor(0), tensor(1, TensorType.INT8, constant=True, quantized=True), tensor(2), tensor(3)],
        [
            Operator(0, BuiltinOperator.DEQUANTIZE, 1, (1,), (2,)),
            Operator(1, BuiltinOperator.FULLY_CONNECTED, 1, (0, 2), (3,)),
        ],
    )
    assert arithmetic_of(made) is Arithmetic.FLOAT


def test_integer_model_may_convert_at_its_ends():
    made = model(
        [tensor(0), *(tensor(i, TensorType.INT8, quantized=True) for i in (1, 2)), tensor(3)],
        [
            Operator(0, BuiltinOperator.QUANTIZE, 1, (0,), (1,)),
            Operator(1, BuiltinOperator.RELU, 1, (1,), (2,)),
            Operator(2, BuiltinOperator.DEQUANTIZE, 1, (2,), (3,)),
        ],
    )
    assert arithmetic_of(made) is Arithmetic.INTEGER


def test_float_operator_in_the_middle_makes_a_model_mixed():
    made = model(
        [
            tensor(0, TensorType.INT8, quantized=True),
            tensor(1),
            tensor(2),
            tensor(3, TensorType.INT8, quantized=True),
        ],
        [
            Operator(0, BuiltinOperator.DEQUANTIZE, 1, (0,), (1,)),
            Operator(1, BuiltinOperator.RELU, 1, (1,), (2,)),
            Operator(2, BuiltinOperator.QUANTIZE, 1, (2,), (3,)),
        ],
    )
    assert arithmetic_of(made) is Arithmetic.MIXED


def test_hybrid_weights_make_a_model_mixed():
    made = model(
        [tensor(0), tensor(1, TensorType.INT8, constant=True, quantized=True), tensor(2)],
        [Operator(0, BuiltinOperator.FULLY_CONNECTED, 1, (0, 1), (2,))],
    )
    assert arithmetic_of(made) is Arithmetic.MIXED


def test_a_model_with_variables_keeps_state():
    plain = [tensor(0), tensor(1)]
    relu = [Operator(0, BuiltinOperator.RELU, 1, (0,), (1,))]
    assert not keeps_state(model(plain, relu))
    variable = Tensor(1, "state", TensorType.FLOAT32, (4,), is_variable=True)
    assert keeps_state(model([tensor(0), variable], relu))
    handle = [Operator(0, BuiltinOperator.VAR_HANDLE, 1, (), (1,))]
    assert keeps_state(model(plain, handle))
