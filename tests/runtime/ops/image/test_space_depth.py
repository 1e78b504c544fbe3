"""Blocks of pixels as channels or batches, and back, against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, levels, patterns
from tests.runtime.ops.every_type import every_type, fed, ints, moves_as_litert, unary

MOVEMENTS = [
    unary("two", Op.SPACE_TO_DEPTH, (2, 4, 6, 3), block_size=2),
    unary("two", Op.DEPTH_TO_SPACE, (2, 2, 3, 8), block_size=2),
    unary("three", Op.DEPTH_TO_SPACE, (1, 2, 1, 18), block_size=3),
    unary("image", Op.SPACE_TO_BATCH_ND, (1, 3, 5, 2), ints([2, 3]), ints([[0, 1], [1, 0]])),
    unary("line", Op.SPACE_TO_BATCH_ND, (2, 4, 3), ints([2]), ints([[0, 0]])),
    unary("computed", Op.SPACE_TO_BATCH_ND, (1, 2, 2, 1), fed([2, 2]), fed([[0, 0], [2, 0]])),
    unary("image", Op.BATCH_TO_SPACE_ND, (6, 2, 2, 2), ints([2, 3]), ints([[0, 1], [1, 2]])),
    unary("line", Op.BATCH_TO_SPACE_ND, (4, 2, 3), ints([2]), ints([[0, 0]])),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def depth(opcode: Op, block: int, *shape: int) -> Case:
    options = {"block_size": block}
    return case(f"{opcode.name}_{shape}", opcode, [patterns(*shape)], options=options)


def batch(opcode: Op, blocks: Sequence[int], edges: Sequence[Sequence[int]], *shape: int) -> Case:
    args = [patterns(*shape), const(blocks, np.int32), const(edges, np.int32)]
    return case(f"{opcode.name}_{shape}_{edges}", opcode, args)


S2D, D2S, S2B, B2S = Op.SPACE_TO_DEPTH, Op.DEPTH_TO_SPACE, Op.SPACE_TO_BATCH_ND, Op.BATCH_TO_SPACE_ND
MOVED = [
    *(depth(S2D, 2, n, 4, 6, c) for n, c in [(1, 1), (2, 3), (3, 5), (1, 7), (4, 16)]),
    depth(S2D, 3, 1, 3, 9, 255),
    depth(S2D, 1, 1, 2, 3, 5),
    *(depth(D2S, 2, n, 3, 2, 4 * c) for n, c in [(1, 1), (2, 3), (3, 5), (1, 7), (4, 16)]),
    depth(D2S, 3, 1, 2, 3, 9 * 255),
    batch(S2B, [2, 3], [[0, 0], [0, 0]], 2, 4, 6, 5),
    batch(S2B, [2, 3], [[1, 2], [0, 2]], 3, 3, 4, 16),
    batch(S2B, [3], [[2, 0]], 2, 4, 7),
    batch(S2B, [1, 1], [[0, 1], [0, 0]], 1, 3, 4, 3),
    batch(B2S, [2, 3], [[0, 0], [0, 0]], 12, 2, 3, 5),
    batch(B2S, [2, 3], [[1, 0], [2, 3]], 6, 3, 4, 16),
    batch(B2S, [3], [[1, 1]], 6, 4, 7),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_blocks_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


Q = per_tensor(0.05, -7)
QUANTISED = [
    case(
        "space_to_batch",
        Op.SPACE_TO_BATCH_ND,
        [
            levels(1, 3, 3, 2, quantization=Q),
            const([2, 2], np.int32),
            const([[0, 1], [1, 0]], np.int32),
        ],
        [Out(np.int8, Q)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", QUANTISED, ids=str)
def test_a_quantised_border_is_real_zero(case):
    check(case, CPU)
