"""TILE and BROADCAST_TO against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import const
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, patterns, random
from tests.runtime.ops.every_type import every_type, fed, ints, moves_as_litert, unary

MOVEMENTS = [
    unary("plain", Op.TILE, (2, 3), ints([2, 3])),
    unary("computed_int64", Op.TILE, (2, 1, 3), fed([1, 4, 2], np.int64)),
    unary("none", Op.TILE, (2, 3), ints([0, 3])),
    unary("matrix", Op.BROADCAST_TO, (3, 1), ints([2, 3, 4]), version=2),
    unary("eight", Op.BROADCAST_TO, (1, 2, 1), ints([2, 1, 1, 2, 1, 3, 2, 2], np.int64), version=2),
    unary("computed", Op.BROADCAST_TO, (4,), fed([3, 4]), version=2),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement, tensor_type):
    moves_as_litert(movement, tensor_type)


def tile(multiples: Sequence[int], *shape: int) -> Case:
    return case(f"tile_{shape}", Op.TILE, [patterns(*shape), const(multiples, np.int32)])


def broadcast(target: Sequence[int], *shape: int) -> Case:
    args = [patterns(*shape), const(target, np.int64)]
    return case(f"broadcast_{shape}", Op.BROADCAST_TO, args, version=2)


MOVED = [
    tile([4], 5),
    tile([2, 1], 3, 255),
    tile([1, 1, 1], 2, 3, 7),
    tile([1, 2, 3, 2], 2, 3, 1, 5),
    tile([3, 1, 1, 4], 1, 2, 3, 16),
    tile([2, 1, 3, 1, 2], 1, 2, 1, 3, 7),
    tile([1, 2, 1, 2, 1, 3], 2, 1, 3, 2, 2, 3),
    broadcast([7], 1),
    broadcast([3, 5]),
    broadcast([4, 3, 255], 3, 1),
    broadcast([4, 3, 255], 255),
    broadcast([2, 3, 4, 5], 2, 1, 4, 1),
    broadcast([3, 2, 3, 4, 16], 2, 1, 1, 16),
    broadcast([2, 3, 2, 1, 3, 7], 1, 3, 1, 1, 3, 7),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_repeated_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


EDGE_CASES = [
    case("TILE", Op.TILE, [random(2, 3), const([0, 2], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
