"""Operators that only move elements, on integers and bools: every backend against LiteRT, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Builder, Out, const
from tests.runtime.ops.cases import Case, case, check
from tests.runtime.ops.every_type import Values

TYPES = (TensorType.INT32, TensorType.INT64, TensorType.BOOL)


def moves(kind: TensorType) -> list[Case]:
    """Rows of odd lengths, whole vectors, and parts that begin anywhere in a line of memory."""
    values = Values(kind, 7)

    def moved(name: str, op: Op, args: list[Arg], outs: int = 1, **options: Any) -> Case:
        return case(f"{op.name}_{name}_{kind.name}", op, args, [Out(values.dtype)] * outs, options)

    def integers(*numbers: Any) -> Arg:
        return const(numbers, np.int32)

    return [
        moved("dense", Op.RESHAPE, [values.arg(2, 3, 5), integers(5, 6)]),
        moved("one_row", Op.RESHAPE, [values.arg(7, 1), integers(1, 7)]),
        moved("matrix", Op.TRANSPOSE, [values.arg(7, 255), integers(1, 0)]),
        moved("rank_6", Op.TRANSPOSE, [values.arg(2, 3, 2, 1, 3, 16), integers(2, 0, 4, 1, 3, 5)]),
        moved("middle", Op.SLICE, [values.arg(4, 9, 5), integers(1, 2, 1), integers(2, 5, 3)]),
        moved("vectors", Op.SLICE, [values.arg(4, 32), integers(1, 0), integers(2, 32)]),
        moved("steps", Op.STRIDED_SLICE, [values.arg(7, 9), integers(6, 0), integers(0, 9), integers(-2, 3)]),
        moved("channels", Op.CONCATENATION, [values.arg(4, n) for n in (3, 16, 1, 5)], axis=1),
        moved("aligned", Op.CONCATENATION, [values.arg(3, n) for n in (16, 32, 48)], axis=1),
        moved("rows", Op.CONCATENATION, [values.arg(n, 5) for n in (1, 3, 2)], axis=0),
        moved("vector_rows", Op.CONCATENATION, [values.arg(n, 16) for n in (1, 3, 2)], axis=0),
        moved("last", Op.PACK, [values.arg(3, 5)] * 2, axis=2, values_count=2),
        moved("channels", Op.SPLIT, [const(1, np.int32), values.arg(3, 8)], 4, num_splits=4),
        moved("rows", Op.UNPACK, [values.arg(3, 7)], 3, num=3, axis=0),
    ]


def chained(kind: TensorType) -> Case:
    """Parts that are computed by the delegate, joined inside of its graph, and joined once more."""
    values, build = Values(kind, 3), Builder()
    arrays = tuple(values.array(4, n) for n in (16, 16, 5))
    order = build.constant(np.array([1, 0], np.int32))
    turned = []
    for array in arrays:
        source = build.input(values.dtype, array.T.shape)
        turned.append(build.tensor(values.dtype, array.shape))
        build.operator(Op.TRANSPOSE, [source, order], [turned[-1]])
    inner, whole, back = (build.tensor(values.dtype, shape) for shape in ((4, 32), (4, 37), (37, 4)))
    build.operator(Op.CONCATENATION, turned[:2], [inner], {"axis": 1})
    build.operator(Op.CONCATENATION, [inner, turned[2]], [whole], {"axis": 1})
    build.operator(Op.TRANSPOSE, [whole, order], [back])
    return Case(f"chained_{kind.name}", build.write([back]), tuple(array.T.copy() for array in arrays))


UNKNOWN_TO_LITERT = frozenset({"UNPACK_rows_INT64", "PACK_last_BOOL", "SPLIT_channels_BOOL"})
CASES = [
    found for kind in TYPES for found in (*moves(kind), chained(kind)) if found.name not in UNKNOWN_TO_LITERT
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_integers_and_bools_are_moved_as_by_litert(case, backend):
    check(case, backend)
