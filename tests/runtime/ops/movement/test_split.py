"""SPLIT, SPLIT_V and UNPACK against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, patterns, random
from tests.runtime.ops.every_type import Movement, every_type, ints, moves_as_litert, several

MOVEMENTS = [
    several("front", Op.UNPACK, [(3, 4)], outs=3, num=3, axis=0),
    several("last", Op.UNPACK, [(3, 2, 2)], outs=2, num=2, axis=-1),
    Movement(
        "three", Op.SPLIT, lambda v: ([ints(1), v.arg(2, 6)], [v.out() for _ in range(3)], {"num_splits": 3})
    ),
    Movement(
        "sizes",
        Op.SPLIT_V,
        lambda v: ([v.arg(2, 7), ints([1, -1, 2]), ints(1)], [v.out() for _ in range(3)], {"num_splits": 3}),
    ),
    Movement(
        "int64_sizes",
        Op.SPLIT_V,
        lambda v: ([v.arg(7, 2), ints([3, 4], np.int64), ints(-2)], [v.out(), v.out()], {"num_splits": 2}),
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("UNPACK -2", Op.UNPACK, [random(4, 2, 3)], [Out(), Out()], options={"axis": -2, "num": 2}),
    case("SPLIT -1", Op.SPLIT, [const(-1, np.int32), random(2, 6)], [Out()] * 3, options={"num_splits": 3}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


CASES = [
    case("split", Op.SPLIT, [const(1, np.int32), random(2, 6, 3)], [Out()] * 3, {"num_splits": 3}),
    case("split_channels", Op.SPLIT, [const(-1, np.int32), random(1, 4, 5, 8)], [Out()] * 2,
         {"num_splits": 2}),
]  # fmt: skip


def split(parts: int, axis: int, *shape: int) -> Case:
    args = [const(axis, np.int32), patterns(*shape)]
    return case(f"split_{shape}_{axis}", Op.SPLIT, args, [Out()] * parts, {"num_splits": parts})


def product_of_a_part() -> Case:
    """Place the other part's NaNs where a product reads lanes behind the last channel of the first."""
    build = Builder()
    x = build.input(np.float32, (2, 3, 8))
    negated, first, second, y, z = (build.tensor(np.float32) for _ in range(5))
    sizes, axis = build.constant(np.int32([5, 3])), build.constant(np.int32(2))
    build.operator(Op.NEG, [x], [negated])
    build.operator(Op.SPLIT_V, [negated, sizes, axis], [first, second], {"num_splits": 2})
    build.operator(Op.FULLY_CONNECTED, [first, build.constant(random(4, 5).value), -1], [y])
    build.operator(Op.NEG, [second], [z])
    values = random(2, 3, 8).value
    values[..., 5:] = np.nan
    return Case("product_of_a_part", build.write([y, z]), (values,))


EMPTY_PART = case(
    "empty_part",
    Op.SPLIT_V,
    [patterns(3, 4), const([3, 0], np.int32), const(0, np.int32)],
    [Out(), Out()],
    {"num_splits": 2},
)


def split_v(sizes: Sequence[int], axis: int, *shape: int) -> Case:
    args = [patterns(*shape), const(sizes, np.int32), const(axis, np.int32)]
    outs = [Out()] * len(sizes)
    return case(f"split_v_{shape}_{axis}", Op.SPLIT_V, args, outs, {"num_splits": len(sizes)})


def unpack(axis: int, *shape: int) -> Case:
    count = shape[axis]
    return case(
        f"unpack_{shape}_{axis}", Op.UNPACK, [patterns(*shape)], [Out()] * count, {"num": count, "axis": axis}
    )


MOVED = [
    split(1, 0, 5, 3),
    split(2, 0, 6),
    split(3, -2, 4, 6, 5),
    split(2, 3, 1, 3, 5, 32),
    split(2, -1, 2, 3, 5, 6),
    split(3, 2, 2, 3, 6, 7),
    split(2, 4, 2, 1, 3, 2, 4),
    split(2, 1, 2, 4, 1, 3, 2, 5),
    split(5, -1, 1, 2, 2, 3, 2, 255),
    split_v([1, -1], 0, 7),
    split_v([16, 8, -1], 3, 2, 2, 3, 40),
    split_v([1, 3, 5, 7], -1, 3, 2, 16),
    split_v([2, 1], 1, 4, 3, 17),
    split_v([3, 2], -3, 2, 3, 1, 5, 2, 7),
    unpack(0, 3),
    unpack(-1, 2, 5),
    unpack(1, 4, 3, 7),
    unpack(-2, 2, 3, 3, 255),
    unpack(0, 2, 3, 1, 4, 5),
    unpack(3, 2, 1, 3, 2, 4, 16),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_parts_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


@pytest.mark.parametrize("case", [*CASES, EMPTY_PART, product_of_a_part()], ids=str)
def test_split_matches_litert(case, backend):
    check(case, backend)
