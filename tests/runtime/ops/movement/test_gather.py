"""GATHER and GATHER_ND against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import LiteRtError, run_litert
from tests.runtime.models import Arg, Builder, Out, const, one_operator
from tests.runtime.ops.cases import CPU, Case, case, check, constant, patterns, random
from tests.runtime.ops.every_type import every_type, fed, ints, moves_as_litert, unary
from tests.runtime.ops.operands import flags, whole

GATHER = Op.GATHER

CASES = [
    case("rows", GATHER, [random(7, 4), const([3, 0, 6, 6], np.int32)]),
    case(
        "columns_fed", GATHER, [random(3, 7), Arg(np.array([[1, 5], [0, 2]], np.int32))], options={"axis": 1}
    ),
    case("last_axis", GATHER, [random(2, 3, 7), const([6, 1], np.int64)], options={"axis": -1}),
    case("scalar_index", GATHER, [random(5, 4), const(2, np.int32)]),
    case("scalar_fed", GATHER, [random(5, 40), fed(3)]),
    case("element", GATHER, [random(5), fed(2, np.int64)]),
    case("vectors_fed", GATHER, [random(9, 2, 48), fed([[8, 0, 8], [1, 7, 2]])]),
    case("long_rows", GATHER, [random(4, 769), fed([3, 1], np.int64)]),
    case("constant_table", GATHER, [constant(random(6, 255)), fed([5, 0, 2])]),
    case("no_variable_part", GATHER, [constant(random(6, 3)), const([5, 0], np.int32)]),
    case("batch", GATHER, [random(3, 5, 7), fed([[4, 0], [1, 1], [2, 3]])],
         options={"axis": 1, "batch_dims": 1}),
    case("batch_of_columns", GATHER, [random(2, 3, 4, 5), fed([[[4]], [[1]]])],
         options={"axis": -1, "batch_dims": 1}),
    case("batches", GATHER, [random(2, 3, 4, 17), fed([[3, 0, 1], [2, 2, 0]], np.int64)],
         options={"axis": 2, "batch_dims": 2}),
    case("rank_6", GATHER, [random(2, 1, 3, 2, 4, 3), fed([2, 0])], options={"axis": 2}),
    case("patterns", GATHER, [patterns(7, 33), fed([6, 0, 3])]),
    case("of_int64", GATHER, [whole(7, 5, dtype=np.int64), fed([6, 0, 3])], [Out(np.int64)]),
    case("of_bool", GATHER, [flags(7, 5), fed([6, 0, 3, 3])], [Out(np.bool_)], {"axis": 0}),
    case("of_int32", GATHER, [whole(7, 5), fed([4, 0, 3, 3])], [Out(np.int32)], {"axis": 1}),
    case("nd_elements", Op.GATHER_ND, [random(3, 4), fed([[0, 1], [2, 3], [1, 0]])]),
    case("nd_vector", Op.GATHER_ND, [random(3, 4), fed([2, 3])]),
    case("nd_rows", Op.GATHER_ND, [random(3, 4, 255), fed([[[2, 1]], [[0, 3]]], np.int64)]),
    case("nd_slices", Op.GATHER_ND, [random(4, 3, 16), const([[3], [0], [3]], np.int32)]),
    case("nd_rank_6", Op.GATHER_ND, [random(2, 3, 2, 2, 3, 4), fed([[1, 2, 0, 1, 2, 3], [0] * 6])]),
    case("nd_of_int64", Op.GATHER_ND, [whole(3, 4, 5, dtype=np.int64), fed([[2, 3], [0, 0]])],
         [Out(np.int64)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather_matches_litert(case, backend):
    check(case, backend)


def between() -> Case:
    """Build a computed table at computed indices: both lie in padded rows, and so do the rows behind."""
    build = Builder()
    x, first, last = (
        build.input(t, s) for t, s in ((np.float32, (7, 5)), (np.int32, (3,)), (np.int32, (2,)))
    )
    ids = build.tensor(np.int32, (5,))
    signed, rows, y = (build.tensor(np.float32, shape) for shape in ((7, 5), (5, 5), (5, 5)))
    build.operator(Op.CONCATENATION, [first, last], [ids], {"axis": 0})
    build.operator(Op.NEG, [x], [signed])
    build.operator(GATHER, [signed, ids], [rows])
    build.operator(Op.ABS, [rows], [y])
    inputs = (random(7, 5).value, np.int32([6, 0, 3]), np.int32([3, 5]))
    return Case("between", build.write([y]), inputs)


def test_rows_between_computed_tensors_match_litert(backend):
    check(between(), backend)


OUTSIDE_7 = "an index is outside the axis of 7"

OUTSIDE = [
    (GATHER, [random(7, 4), fed([0, 0])], [[0, -1], [7, 0], [1 << 30, 0]], OUTSIDE_7),
    (GATHER, [random(7, 4), fed([0], np.int64)], [[1 << 32], [-(1 << 40)]], OUTSIDE_7),
    (Op.GATHER_ND, [random(2, 3), fed([[0, 0]])], [[[0, 3]], [[2, 0]], [[-1, 0]]],
     "an index is outside [2, 3]"),
    (Op.EMBEDDING_LOOKUP, [fed([0, 0]), constant(random(6, 5))], [[6, 0], [0, -1]],
     "a row outside the 6 of the table"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "args", "wrong", "message"), OUTSIDE, ids=lambda v: getattr(v, "name", "")
)
def test_an_index_outside_ends_the_run_with_an_error_and_the_next_run_is_right(
    opcode, args, wrong, message, backend
):
    model = one_operator(opcode, args)
    delegates = [] if backend.delegate is None else [backend.delegate]
    interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    assert interpreter.delegation is None or not interpreter.delegation.fallbacks
    inputs = [arg.value for arg in args if not arg.constant]
    place = next(i for i, value in enumerate(inputs) if value.dtype.kind == "i")
    for indices in wrong:
        bad = [np.array(indices, v.dtype) if i == place else v for i, v in enumerate(inputs)]
        with pytest.raises(LiteRtError):
            run_litert(model, bad)
        for details, value in zip(interpreter.get_input_details(), bad, strict=True):
            interpreter.set_tensor(details["index"], value)
        with pytest.raises(InvocationError) as raised:
            interpreter.invoke()
        assert str(raised.value) == f"operator 0 {opcode.name}: {message}"
        interpreter.set_tensor(interpreter.get_input_details()[place]["index"], inputs[place])
        interpreter.invoke()
        (found,) = (interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details())
        np.testing.assert_array_equal(found, run_litert(model, inputs)[0])


def test_the_first_operator_whose_index_is_outside_is_named(backend):
    """The error is the CPU path's, on which no later operator would have run."""
    build = Builder()
    x, first, last = (
        build.input(t, s) for t, s in ((np.float32, (7, 5)), (np.int32, (2,)), (np.int32, (1,)))
    )
    rows, y = (build.tensor(np.float32, shape) for shape in ((2, 5), (1, 5)))
    build.operator(GATHER, [x, first], [rows])
    build.operator(GATHER, [rows, last], [y])
    delegates = [] if backend.delegate is None else [backend.delegate]
    interpreter = Interpreter(model_content=build.write([y]), experimental_delegates=delegates)
    interpreter.allocate_tensors()
    for one, two, culprit in ((7, 9, "0 GATHER"), (6, 9, "1 GATHER"), (7, 0, "0 GATHER")):
        interpreter.set_tensor(first, np.int32([0, one]))
        interpreter.set_tensor(last, np.int32([two]))
        with pytest.raises(InvocationError, match=f"operator {culprit}: "):
            interpreter.invoke()


def test_a_constant_index_outside_keeps_the_operator_on_the_cpu_path(gpu):
    """There is nothing to wait for; the CPU path ends each run with its error."""
    model = one_operator(GATHER, [random(7, 4), const([0, 7], np.int32)])
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    interpreter.allocate_tensors()
    (fallback,) = interpreter.delegation.fallbacks
    assert fallback.reason == "an index is outside the axis of 7, which the CPU path reports when it runs"
    with pytest.raises(InvocationError, match="an index is outside the axis of 7"):
        interpreter.invoke()


MOVEMENTS = [
    unary("rows", Op.GATHER, (7, 4), fed([3, 0, 6, 6])),
    unary("list", Op.GATHER, (7,), fed([3, 0, 6, 6])),
    unary("int16", Op.GATHER, (2, 7, 3), ints([[1, 5], [0, 2]], np.int16), axis=1),
    unary("int64", Op.GATHER, (2, 7), ints([6, 1], np.int64), axis=-1),
    unary("scalar", Op.GATHER, (5, 4), ints(2)),
    unary("batch", Op.GATHER, (2, 5, 3), ints([[4, 0, 1], [2, 2, 3]]), axis=1, batch_dims=1),
    unary("batch_before_axis", Op.GATHER, (2, 3, 4), ints([[3, 0], [1, 2]]), axis=2, batch_dims=1),
    unary("batch_negative", Op.GATHER, (2, 3, 4), ints([[3, 0], [1, 2]]), axis=-1, batch_dims=-1),
    unary("elements", Op.GATHER_ND, (3, 4), fed([[0, 1], [2, 3], [1, 0]])),
    unary("slices", Op.GATHER_ND, (3, 4, 2), ints([[[0], [2]], [[1], [1]]], np.int64)),
    unary("int16", Op.GATHER_ND, (3, 4, 2), ints([[2, 1], [0, 0]], np.int16)),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("GATHER -1", Op.GATHER, [random(2, 5), const([4, 0], np.int32)], options={"axis": -1}),
    case("GATHER by a scalar", Op.GATHER, [random(4, 3), const(2, np.int32)], options={"axis": 0}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
