"""RANGE, FILL, ZEROS_LIKE, ONE_HOT and diagonals against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check
from tests.runtime.ops.every_type import NOT_STRINGS, Movement, every_type, fed, ints, moves_as_litert, unary


def ranged(name, start, limit, delta, dtype, fed=False) -> Case:
    args = [Arg(np.array(v, dtype), constant=not fed) for v in (start, limit, delta)]
    return case(name, Op.RANGE, args, [Out(dtype)])


CASES = [
    ranged("up", 2, 11, 3, np.int32),
    ranged("down", 9, -4, -5, np.int64),
    ranged("computed", 1, 9, 2, np.int32, fed=True),
    ranged("tenths", 0.1, 7.3, 0.1, np.float32),
    ranged("thirds_down", 5.0, -1.0, -1 / 3, np.float32, fed=True),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_made_as_litert_does(case):
    check(case, CPU)


DIAGONAL = (
    TensorType.FLOAT32,
    TensorType.INT64,
    TensorType.INT32,
    TensorType.INT16,
    TensorType.INT8,
    TensorType.UINT8,
)
"""The types in which LiteRT's kernels of diagonals leave no result undefined."""
MOVEMENTS = [
    Movement("plain", Op.FILL, lambda v: ([ints([2, 3]), v.arg()], [v.out()], {}), only=NOT_STRINGS),
    Movement(
        "computed", Op.FILL, lambda v: ([fed([2, 3], np.int64), v.arg()], [v.out()], {}), only=NOT_STRINGS
    ),
    unary("plain", Op.ZEROS_LIKE, (2, 3)),
    Movement(
        "last", Op.ONE_HOT,
        lambda v: ([fed([[1, 4], [0, 7]]), ints(5), v.arg(), v.arg()], [v.out()], {"axis": -1}),
    ),
    Movement(
        "first_int64", Op.ONE_HOT,
        lambda v: ([fed([1, -1, 2], np.int64), fed(3), v.arg(), v.arg()], [v.out()], {"axis": 0}),
    ),
    Movement("plain", Op.MATRIX_DIAG, lambda v: ([v.arg(2, 3)], [v.out()], {}), only=DIAGONAL),
    Movement(
        "wide", Op.MATRIX_SET_DIAG, lambda v: ([v.arg(2, 3, 4), v.arg(2, 3)], [v.out()], {}), only=DIAGONAL
    ),
    Movement("tall", Op.MATRIX_SET_DIAG, lambda v: ([v.arg(4, 2), v.arg(2)], [v.out()], {}), only=DIAGONAL),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def hot(name: str, indices: Arg, depth: int, on: Arg, off: Arg, axis: int = -1) -> Case:
    args = [indices, const(depth, np.int32), on, off]
    return case(f"one_hot_{name}", Op.ONE_HOT, args, [Out(on.value.dtype)], {"axis": axis})


HOT = [
    hot("last", fed([[1, 4, 2], [0, 7, -1]]), 5, const(2.5), const(-1.0)),
    hot("first", fed([1, 0, 2], np.int64), 3, const(1.0), const(0.0), axis=0),
    hot("between", fed([[1, 4, 2], [0, 7, -1]]), 17, const(1, np.int64), const(0, np.int64), axis=1),
    hot("scalar", fed(3), 5, const(True, np.bool_), const(False, np.bool_)),
    hot("rank_5", fed(np.arange(12).reshape(1, 2, 3, 2) % 5), 4, const(7, np.int32), const(0, np.int32), 2),
    hot("fed", fed([2, 0]), 3, fed(np.nan, np.float32), fed(-0.0, np.float32)),
    hot("constant", const([2, 0, 1], np.int32), 3, const(1.0), const(0.0)),
]  # fmt: skip


@pytest.mark.parametrize("case", HOT, ids=str)
def test_one_hot_vectors_match_litert(case, backend):
    check(case, backend)


EDGE_CASES = [
    case("ONE_HOT -1", Op.ONE_HOT, [const([2, 0, 1], np.int32), const(3, np.int32), const(5.0), const(-1.0)],
         options={"axis": -1}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
