"""Operators that only move elements, on integers and bools: every backend against LiteRT, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Builder, Out, const
from tests.runtime.ops.cases import Case, case, check, constant
from tests.runtime.ops.every_type import Values

TYPES = (TensorType.INT16, TensorType.INT32, TensorType.INT64, TensorType.BOOL)


def moves(kind: TensorType) -> list[Case]:
    """Rows of odd lengths, whole vectors, and parts that begin anywhere in a line of memory."""
    values = Values(kind, 7)

    def moved(name: str, op: Op, args: list[Arg], outs: int = 1, **options: Any) -> Case:
        version = 2 if op is Op.BROADCAST_TO else 1
        return case(f"{op.name}_{name}_{kind.name}", op, args, [Out(values.dtype)] * outs, options, version)

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
        moved("zeros", Op.PAD, [values.arg(3, 5), integers((1, 2), (0, 3))]),
        moved("batch", Op.PAD, [values.arg(2, 3, 2, 7), integers((1, 0), (0, 2), (0, 0), (0, 0))]),
        moved("value", Op.PADV2, [values.arg(3, 5), integers((1, 0), (2, 1)), constant(values.arg(1))]),
        moved("reflect", Op.MIRROR_PAD, [values.arg(3, 5), integers((1, 2), (3, 0))], mode=0),
        moved("twice", Op.TILE, [values.arg(3, 5), integers(2, 3)]),
        moved("rows", Op.BROADCAST_TO, [values.arg(3, 1), integers(2, 3, 7)]),
        moved("fed", Op.FILL, [integers(3, 7), values.arg()]),
        moved("backwards", Op.REVERSE_V2, [values.arg(3, 5), integers(1)]),
        moved("blocks", Op.SPACE_TO_DEPTH, [values.arg(1, 4, 6, 3)], block_size=2),
        moved("blocks", Op.DEPTH_TO_SPACE, [values.arg(1, 2, 3, 20)], block_size=2),
        moved(
            "edges", Op.SPACE_TO_BATCH_ND, [values.arg(2, 3, 4, 5), integers(2, 2), integers((1, 0), (0, 2))]
        ),
        moved(
            "edges", Op.BATCH_TO_SPACE_ND, [values.arg(4, 2, 3, 5), integers(2, 2), integers((1, 0), (0, 2))]
        ),
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


def masked() -> Case:
    """Scores of which a mask of integers leaves a part: an addend from flags, and a selection."""
    random, build = np.random.default_rng(4), Builder()
    tokens, scores = random.integers(0, 3, (2, 1, 5)).astype(np.int32), random.normal(0, 1, (2, 3, 5))
    ids, x = build.input(np.int32, tokens.shape), build.input(np.float32, scores.shape)
    flags, ones, numbers, addend, shifted, kept, y = (
        build.tensor(dtype, shape)
        for dtype, shape in (
            (np.bool_, tokens.shape), (np.int32, tokens.shape), *((np.float32, tokens.shape),) * 2,
            *((np.float32, scores.shape),) * 2, (np.float32, (2, 3, 4)),
        )
    )  # fmt: skip
    build.operator(Op.NOT_EQUAL, [ids, build.constant(np.array(0, np.int32))], [flags])
    build.operator(Op.CAST, [flags], [ones])
    build.operator(Op.CAST, [ones], [numbers])
    build.operator(Op.MUL, [numbers, build.constant(np.float32([-9]))], [addend])
    build.operator(Op.ADD, [x, addend], [shifted])
    build.operator(Op.SELECT_V2, [flags, shifted, build.constant(np.float32(np.inf))], [kept])
    weights = random.normal(0, 1, (4, 5)).astype(np.float32)
    build.operator(Op.FULLY_CONNECTED, [kept, build.constant(weights), -1], [y], {"keep_num_dims": True})
    return Case("masked", build.write([y]), (tokens, scores.astype(np.float32)))


def counted() -> Case:
    """Integers that stay in the graph from operator to operator, joined and turned between."""
    values, build = Values(TensorType.INT32, 8), Builder()
    first, second = values.array(4, 7), values.array(4, 9)
    x, z = build.input(np.int32, (4, 7)), build.input(np.int32, (4, 9))
    doubled, least, whole = (build.tensor(np.int32, (4, n)) for n in (7, 9, 16))
    turned, y = build.tensor(np.int32, (16, 4)), build.tensor(np.int64, (16, 4))
    build.operator(Op.ADD, [x, x], [doubled])
    build.operator(Op.MINIMUM, [z, build.constant(np.array([[5]], np.int32))], [least])
    build.operator(Op.CONCATENATION, [doubled, least], [whole], {"axis": 1})
    build.operator(Op.TRANSPOSE, [whole, build.constant(np.array([1, 0], np.int32))], [turned])
    build.operator(Op.CAST, [turned], [y])
    return Case("counted", build.write([y, least]), (first, second))


UNKNOWN_TO_LITERT = frozenset({
    "UNPACK_rows_INT64", "PACK_last_BOOL", "SPLIT_channels_BOOL", "SPACE_TO_DEPTH_blocks_BOOL",
    "DEPTH_TO_SPACE_blocks_BOOL", "SPACE_TO_DEPTH_blocks_INT16", "DEPTH_TO_SPACE_blocks_INT16",
})  # fmt: skip
CASES = [
    found for kind in TYPES for found in (*moves(kind), chained(kind)) if found.name not in UNKNOWN_TO_LITERT
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_integers_and_bools_are_moved_as_by_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("case", [masked(), counted()], ids=str)
def test_values_of_several_types_in_one_graph_are_those_of_litert(case, backend):
    check(case, backend)
