"""GATHER and GATHER_ND against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import InvocationError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, const, one_operator
from tests.runtime.ops.cases import CPU, case, check, random
from tests.runtime.ops.every_type import every_type, fed, ints, moves_as_litert, unary

GATHER = Op.GATHER

CASES = [
    case("rows", GATHER, [random(7, 4), const([3, 0, 6, 6], np.int32)]),
    case(
        "columns_fed", GATHER, [random(3, 7), Arg(np.array([[1, 5], [0, 2]], np.int32))], options={"axis": 1}
    ),
    case("last_axis", GATHER, [random(2, 3, 7), const([6, 1], np.int64)], options={"axis": -1}),
    case("scalar_index", GATHER, [random(5, 4), const(2, np.int32)]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gather_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("index", [-1, 7])
def test_an_index_outside_the_axis_is_an_error(index):
    model = one_operator(GATHER, [random(7, 4), Arg(np.zeros(1, np.int32))])
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(1, np.array([index], np.int32))
    with pytest.raises(InvocationError, match="outside the axis of 7"):
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
def test_every_type_moves_as_litert_does(movement, tensor_type):
    moves_as_litert(movement, tensor_type)


EDGE_CASES = [
    case("GATHER -1", Op.GATHER, [random(2, 5), const([4, 0], np.int32)], options={"axis": -1}),
    case("GATHER by a scalar", Op.GATHER, [random(4, 3), const(2, np.int32)], options={"axis": 0}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
