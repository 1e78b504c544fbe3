"""The table of tolerances: what passes, what fails, and with which reason."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.judge.agreement import Expected, OutputFacts, judge, judge_each, worst
from runtime.judge.rules import Arithmetic, arithmetic_of, keeps_state, rule_for
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

FLOAT = OutputFacts("out")
INT8 = OutputFacts("out", scale=0.5, zero_point=-3)
FP32 = rule_for(Arithmetic.FLOAT, integer_path=True, precision="fp32")
FP16 = rule_for(Arithmetic.FLOAT, integer_path=False, precision="fp16")
EXACT = rule_for(Arithmetic.INTEGER, integer_path=True, precision="fp32")
COSINE = rule_for(Arithmetic.MIXED, integer_path=True, precision="fp32")
RUNS = ("xnnpack", "builtin", "threads", "moved", "fp16", "fp16_scaled", "bf16", "bf16_scaled")
SCATTER = rule_for(Arithmetic.MIXED, integer_path=True, precision="fp32", draws=["xnnpack"])
ROUNDED = rule_for(Arithmetic.FLOAT, integer_path=False, precision="fp16", draws=["fp16"])

R = np.linspace(-1, 1, 1000, dtype=np.float32)


def verdict(r, y, rule, facts=FLOAT):
    return judge(Expected([[r]], [facts]), [[y]], rule)


@pytest.mark.parametrize(
    ("arithmetic", "integer_path", "precision", "exact_reference", "draws", "kind", "used"),
    [
        (Arithmetic.FLOAT, True, "fp32", True, RUNS, "floats", RUNS[:4]),
        (Arithmetic.FLOAT, True, "fp32", True, (), "floats", ()),
        (Arithmetic.FLOAT, False, "fp16", True, RUNS, "floats", RUNS[:6]),
        (Arithmetic.FLOAT, False, "tf32", True, RUNS, "floats", RUNS[:6]),
        (Arithmetic.FLOAT, False, "tf32", True, (*RUNS[:4], *RUNS[6:]), "norm", ()),
        (Arithmetic.FLOAT, False, "bf16", True, RUNS, "floats", (*RUNS[:4], *RUNS[6:])),
        (Arithmetic.FLOAT, False, "fp16", True, RUNS[:4], "norm", ()),
        (Arithmetic.INTEGER, True, "fp32", True, RUNS, "bit_equal", ()),
        (Arithmetic.INTEGER, True, "fp32", False, (), "cosine", ()),
        (Arithmetic.INTEGER, False, "fp32", True, RUNS, "quantised", RUNS[:4]),
        (Arithmetic.INTEGER, False, "fp32", True, (), "cosine", ()),
        (Arithmetic.MIXED, True, "fp32", True, RUNS[:1], "quantised", RUNS[:1]),
        (Arithmetic.MIXED, True, "fp32", False, RUNS, "cosine", ()),
    ],
)
def test_each_pairing_has_its_rule(arithmetic, integer_path, precision, exact_reference, draws, kind, used):
    rule = rule_for(
        arithmetic,
        integer_path=integer_path,
        precision=precision,
        exact_reference=exact_reference,
        draws=draws,
    )
    assert (rule.kind, rule.draws) == (kind, used)


def test_floats_may_be_off_by_rounding_and_by_what_honest_runs_are():
    noise = np.random.default_rng(3).normal(0, np.abs(R).mean(), R.shape).astype(np.float32)
    passed = verdict(R, R + np.float32(5e-5) * noise, FP32)
    assert (passed.verdict, passed.note) == ("pass", "")
    assert 0.2 < passed.margin < 1.0
    failed = verdict(R, R + np.float32(3e-4) * noise, FP32)
    assert failed.verdict == "fail"
    assert failed.margin > 1.0
    assert "output 'out' of input set 0: " in failed.note
    assert verdict(R, R * np.float32(1.015), FP16).verdict == "pass", "nothing tells what rounding explains"
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
    """Return a flat softmax, as an untrained classifier gives it."""
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
    judged = judge(Expected([[r]], [FLOAT], {"xnnpack": [[x]]}), [[LIES[lie](r)]], SCATTER)
    assert judged.verdict == "fail", judged
    if lie != "another scale":
        assert verdict(r, LIES[lie](r), COSINE).verdict == "fail"


def scattered(r, share, seed):
    """Return an honest run: off by random errors of this share of the norm."""
    noise = np.random.default_rng(seed).normal(
        0, share * np.sqrt(np.mean(np.square(r, dtype=float))), r.shape
    )
    return (r + noise).astype(r.dtype)


PICTURE = np.random.default_rng(9).normal(0, 1, (1, 32, 32, 8)).astype(np.float32)

LOCAL = {
    "a value": lambda y: y.__setitem__((0, 7, 9, 3), y[0, 7, 9, 3] + 0.2),
    "a channel": lambda y: y.__setitem__((..., 5), 1.02 * y[..., 5]),
    "a row": lambda y: y.__setitem__((0, 31), 1.02 * y[0, 31]),
    "a column": lambda y: y.__setitem__((0, slice(None), 0), 1.02 * y[0, :, 0]),
    "a tile": lambda y: y.__setitem__((0, slice(8, 16), slice(24, 32)), 1.02 * y[0, 8:16, 24:32]),
    "a gain": lambda y: np.multiply(y, 1.004, out=y),
    "an offset": lambda y: np.add(y, 0.004, out=y),
}


@pytest.mark.parametrize("wrong", LOCAL)
def test_small_local_and_systematic_errors_are_told_from_rounding(wrong):
    """Each is well within the norm that rounding in fp16 explains here, a thousandth."""
    runs = {"fp16": [[scattered(PICTURE, 1e-3, 11)]]}
    y = scattered(PICTURE, 1e-3, 12)
    assert judge(Expected([[PICTURE]], [FLOAT], runs), [[y]], ROUNDED).verdict == "pass"
    LOCAL[wrong](y)
    judged = judge(Expected([[PICTURE]], [FLOAT], runs), [[y]], ROUNDED)
    assert judged.verdict == "fail", judged


def test_a_run_in_another_precision_excuses_nothing():
    runs = {"fp16": [[scattered(PICTURE, 1e-3, 11)]], "bf16": [[scattered(PICTURE, 1e-2, 11)]]}
    expected, y = Expected([[PICTURE]], [FLOAT], runs), scattered(PICTURE, 5e-3, 12)
    assert judge(expected, [[y]], ROUNDED).verdict == "fail"
    rounded = rule_for(Arithmetic.FLOAT, integer_path=False, precision="bf16", draws=runs)
    assert judge(expected, [[y]], rounded).verdict == "pass"


def test_integers_may_be_off_by_half_as_much_again_as_an_honest_run_and_a_part_of_a_quantum():
    facts = OutputFacts("out", scale=0.1, zero_point=0)
    r = np.random.default_rng(4).integers(-100, 100, 400).astype(np.int8)
    x = (r + np.random.default_rng(5).integers(-4, 5, r.size)).astype(np.int8)
    expected = Expected([[r]], [facts], {"xnnpack": [[x]]})
    other = (r + np.random.default_rng(6).integers(-5, 6, r.size)).astype(np.int8)
    assert judge(expected, [[other]], SCATTER).verdict == "pass"
    failed = judge(expected, [[(r + 3).astype(np.int8)]], SCATTER)
    assert failed.verdict == "fail", "each value is within, all of them together are not"
    assert failed.peer_rel_l2 == pytest.approx(
        np.linalg.norm(x.astype(float) - r) / np.linalg.norm(r.astype(float))
    )


def test_one_quantum_less_everywhere_is_a_wrong_zero_point():
    facts = OutputFacts("out", scale=0.1, zero_point=0)
    r = np.random.default_rng(4).integers(-100, 100, 400).astype(np.int8)
    expected = Expected([[r]], [facts], {"xnnpack": [[r]]})
    flipped = r.copy()
    flipped[::10] += 1
    assert judge(expected, [[flipped]], SCATTER).verdict == "pass"
    assert judge(expected, [[r - 1]], SCATTER).verdict == "fail"
    one = r.copy()
    one[17] += 12
    assert judge(expected, [[one]], SCATTER).verdict == "fail", "far less than sqrt(n) quanta, in one place"


def test_a_model_that_amplifies_rounding_is_not_judged_and_never_called_wrong():
    r = np.random.default_rng(2).normal(0, 1, 500).astype(np.float32)
    runs = {name: [[scattered(r, 0.4, seed)]] for seed, name in enumerate(("xnnpack", "moved"))}
    rule = rule_for(Arithmetic.MIXED, integer_path=False, precision="fp32", draws=runs)
    for y in (r, runs["xnnpack"][0][0], scattered(r, 0.6, 7), -r):
        judged = judge(Expected([[r]], [FLOAT], runs), [[y]], rule)
        assert judged.verdict is None
        assert "the model amplifies rounding by 3.7e+05: honest runs differ by 41%" in judged.note
    y = r.copy()
    y[3] = np.nan
    assert judge(Expected([[r]], [FLOAT], runs), [[y]], rule).verdict == "fail"


def test_a_reference_of_zeros_from_which_honest_runs_differ_is_not_judged():
    r = np.random.default_rng(2).normal(0, 1, 500).astype(np.float32)
    nothing = np.zeros_like(r)
    runs = {"xnnpack": [[r], [scattered(r, 0.1, 3)]], "moved": [[r], [nothing]]}
    judged = judge_each(Expected([[r], [nothing]], [FLOAT], runs), [[r], [nothing]], SCATTER)[0]
    assert judged.verdict == "pass", "the set of values is judged"
    assert "rounding: honest runs differ from a reference of zeros; give it natural ones" in judged.note


def test_a_set_in_which_honest_runs_agree_is_judged_by_what_is_usual_in_the_others():
    sets = [np.random.default_rng(seed).normal(0, 1, 500).astype(np.float32) for seed in range(4)]
    runs = {"xnnpack": [[scattered(r, 0.03, 20 + k) if k else r] for k, r in enumerate(sets)]}
    outputs = [[scattered(r, 0.03, 30 + k)] for k, r in enumerate(sets)]
    assert judge(Expected([[r] for r in sets], [FLOAT], runs), outputs, SCATTER).verdict == "pass"


def test_class_ids_are_compared_by_how_many_differ():
    r = np.random.default_rng(2).integers(0, 20, (1, 40, 40))
    x, y = r.copy(), r.copy()
    x[0, :2, :20] = 0
    y[0, 2:4, :20] = 19
    expected = Expected([[r]], [OutputFacts("classes")], {"xnnpack": [[x]]})
    assert judge(expected, [[y]], SCATTER).verdict == "pass"
    assert "of the indices differ" in judge(expected, [[(r + 1) % 20]], SCATTER).note


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
    alone = judge(expected, [references[1]], FP16, sets=[0])
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


def test_a_peer_that_is_not_finite_is_no_measure():
    expected = Expected([[R]], [FLOAT], {"xnnpack": [[np.full_like(R, np.nan)]]})
    assert judge(expected, [[R]], SCATTER).verdict == "pass"
    assert judge(expected, [[-R]], SCATTER).verdict == "fail"


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
