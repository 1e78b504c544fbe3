"""Scripts for the `Interpreter` give the same results, details and kinds of error as LiteRT's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.model.graph import Signature
from runtime.model.schema import BuiltinOperator
from tests.oracle import call_in_litert
from tests.runtime.api import interpreter_scripts
from tests.runtime.graphs import several
from tests.runtime.models import Builder, per_channel, per_tensor
from tests.runtime.ops.state.test_control_flow import FALSE, TRUE, binary, conditional, f32
from tests.runtime.test_interpreter import one_input, small_net

Op = BuiltinOperator


def same(found: Any, expected: Any, at: str = "") -> None:
    """Equal in structure, type and value; says where not."""
    if isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), at
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=at)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=at)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), at
        for key in expected:
            same(found[key], expected[key], f"{at}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), at
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            same(a, b, f"{at}[{i}]")
    else:
        assert found == expected, at


def compare(script: str, *args: Any) -> None:
    expected = call_in_litert(f"tests.runtime.api.interpreter_scripts:{script}", *args)
    same(getattr(interpreter_scripts, script)(ours, *args), expected)


def image() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [
        rng.standard_normal((1, 6, 6, 3)).astype(np.float32),
        rng.standard_normal((1, 1, 1, 4)).astype(np.float32),
    ]


def integer_net() -> bytes:
    """Build a per-channel int8 convolution and a fully connected layer."""
    b = Builder()
    rng = np.random.default_rng(0)
    x = b.input(np.int8, (1, 8, 8, 4), per_tensor(0.1, -3))
    scales = [0.02, 0.03, 0.01, 0.05, 0.02, 0.04]
    w = b.constant(rng.integers(-127, 127, (6, 3, 3, 4)).astype(np.int8), per_channel(scales))
    bias = b.constant(rng.integers(-500, 500, 6).astype(np.int32), per_channel([0.1 * s for s in scales]))
    y = b.tensor(np.int8, (1, 8, 8, 6), per_tensor(0.5, 7))
    b.operator(Op.CONV_2D, [x, w, bias], [y], {"stride_w": 1, "stride_h": 1}, version=3)
    flat = b.constant(rng.integers(-127, 127, (5, 384)).astype(np.int8), per_tensor(0.01))
    z = b.tensor(np.int8, (1, 5), per_tensor(1.5, 2))
    b.operator(Op.FULLY_CONNECTED, [y, flat, -1], [z], version=4)
    return b.write([z])


def test_resolvers_flags_and_threads_are_accepted():
    compare("every_way", small_net(), image())


def test_integers_do_not_depend_on_the_number_of_threads():
    feed = [np.random.default_rng(1).integers(-128, 127, (1, 8, 8, 4)).astype(np.int8)]
    found = interpreter_scripts.every_way(ours, integer_net(), feed)
    first = found["threads"][1][0].tobytes()
    assert all(outputs[0].tobytes() == first for outputs in found["threads"].values())
    reference = call_in_litert("tests.runtime.api.interpreter_scripts:every_way", integer_net(), feed)
    assert reference["kinds"]["BUILTIN_REF"][0].tobytes() == first


def test_floats_stay_within_the_tolerance_for_every_number_of_threads():
    found = interpreter_scripts.every_way(ours, small_net(), image())["threads"]
    expected = call_in_litert("tests.runtime.api.interpreter_scripts:every_way", small_net(), image())
    for count, outputs in found.items():
        same(outputs, expected["threads"][count], f"{count} threads")


def test_operator_details_are_those_of_litert():
    compare("operators", small_net())


def test_kept_intermediates_hold_what_litert_s_hold():
    compare("intermediates", small_net(), image())


def test_views_forbid_what_would_move_their_memory():
    compare("views", one_input())


def test_the_list_of_subgraphs_is_that_of_litert():
    compare("subgraphs", conditional(binary(Op.ADD, f32(10), (2,)), binary(Op.MUL, f32(3), (2,))))


def two_signatures() -> bytes:
    """Build signatures whose names are in another order than their subgraph's tensors."""
    b, other = Builder(), Builder()
    x, y = b.input(np.float32, (2,)), b.input(np.float32, (2,))
    total, product = b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(Op.ADD, [x, y], [total])
    b.operator(Op.MUL, [x, y], [product])
    z = other.input(np.float32, (1, 3))
    negative = other.tensor(np.float32, (1, 3))
    other.operator(Op.NEG, [z], [negative])
    return several(
        (b, [total, product]),
        (other, [negative]),
        signatures=[
            Signature("pair", 0, (("second", y), ("first", x)), (("total", total), ("product", product))),
            Signature("alone", 1, (("value", z),), (("negative", negative),)),
        ],
    )


def test_signatures_run_by_name():
    calls = [
        ("pair", {"first": f32(1, 2), "second": f32(3, 4)}),
        ("alone", {"value": np.ones((2, 3), np.float32)}),
        ("pair", {"first": f32(1, 2, 5), "second": f32(3, 4, 6)}),
        ("alone", {"value": np.ones((1, 3), np.float32)}),
    ]
    compare("signatures", two_signatures(), calls)


def test_calls_that_do_not_fit_a_signature_fail_as_in_litert():
    compare("signature_errors", two_signatures(), "pair", {"first": f32(1, 2), "second": f32(3, 4)})


def test_misuse_has_errors_of_the_kinds_that_litert_raises():
    compare("misuse", small_net())


def test_private_details_of_signatures_operators_and_tensors_are_those_of_litert():
    compare("full_signatures", two_signatures())


def test_a_signature_of_the_whole_model_runs_the_branch_of_its_condition():
    compare("signatures", with_signature(), [("pick", {"c": c, "x": f32(1, 2)}) for c in (TRUE, FALSE, TRUE)])


def with_signature() -> bytes:
    b = Builder()
    c, x = b.input(np.bool_, (1,)), b.input(np.float32, (2,))
    y = b.tensor(np.float32, (2,))
    b.operator(Op.IF, [c, x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    branches = [binary(Op.ADD, f32(10), (2,)), binary(Op.MUL, f32(3), (2,))]
    signature = Signature("pick", 0, (("c", c), ("x", x)), (("y", y),))
    return several((b, [y]), *branches, signatures=[signature])


@pytest.mark.parametrize("unknown", [True, False], ids=["unknown batch", "fixed"])
def test_strict_and_lenient_resizes_are_taken_and_refused_as_in_litert(unknown):
    shapes = [(1, 6, 6, 3), (4, 6, 6, 3), (2, 7, 6, 3), (2, 5, 5, 3)]
    compare("resizes", small_net(batch_unknown=unknown), shapes)
