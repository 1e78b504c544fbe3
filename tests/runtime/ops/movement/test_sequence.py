"""REVERSE_V2, REVERSE_SEQUENCE and TOPK_V2 against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, patterns, random, run_ours
from tests.runtime.ops.every_type import Movement, every_type, fed, ints, moves_as_litert, unary
from tests.runtime.ops.operands import whole

MOVEMENTS = [
    unary("one", Op.REVERSE_V2, (3, 4), ints([1])),
    unary("two", Op.REVERSE_V2, (3, 4, 2), ints([0, -2])),
    unary("plain", Op.REVERSE_SEQUENCE, (3, 4, 2), fed([4, 0, 2]), seq_dim=1, batch_dim=0),
    unary("int64", Op.REVERSE_SEQUENCE, (2, 3, 3), fed([1, 2, 2], np.int64), seq_dim=0, batch_dim=2),
    Movement("rows", Op.TOPK_V2, lambda v: ([v.arg(3, 9), ints(4)], [v.out(), Out(np.int32)], {})),
    Movement("computed", Op.TOPK_V2, lambda v: ([v.arg(7), fed([7])], [v.out(), Out(np.int32)], {})),
    Movement(
        "int16", Op.TOPK_V2,
        lambda v: ([v.arg(2, 5), ints(3, np.int16)], [v.out(), Out(np.int16)], {}), version=3,
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def reverse(axes: Sequence[int], *shape: int) -> Case:
    return case(f"reverse_{shape}_{axes}", Op.REVERSE_V2, [patterns(*shape), const(axes, np.int32)])


MOVED = [
    reverse([0], 7),
    reverse([1], 3, 40),
    reverse([-1], 2, 3, 255),
    reverse([1], 4, 3, 16),
    reverse([-3, -2], 2, 3, 4, 5),
    reverse([2, 3], 1, 5, 4, 16),
    reverse([4], 2, 3, 1, 2, 7),
    reverse([0, 1, 2], 2, 3, 2, 1, 4, 3),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_reversed_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


def top(name: str, x: Arg, k: int) -> Case:
    return case(f"top_{name}", Op.TOPK_V2, [x, const(k, np.int32)], [Out(x.value.dtype), Out(np.int32)])


TOP = [
    top("few", random(3, 9), 4),
    top("all", random(2, 3, 33), 33),
    top("one", random(4, 255), 1),
    top("vector", random(1000), 17),
    top("ties", whole(5, 40, low=0, high=4), 20),
    top("ties_of_many", whole(2, 1000, low=-4, high=4), 30),
    top("int64", whole(2, 21, dtype=np.int64), 5),
    top("infinities", Arg(np.float32([[-np.inf, 0.0, np.inf, -0.0, -np.inf, 3]])), 6),
    top("rank_6", random(2, 1, 2, 1, 3, 5), 2),
]


@pytest.mark.parametrize("case", TOP, ids=str)
def test_the_greatest_elements_match_litert(case, backend):
    check(case, backend)


def test_nans_are_the_greatest_on_every_backend(backend):
    """LiteRT's order of NaNs follows from its heap, whose comparison knows none: nothing is to match."""
    x = np.float32([[3, np.nan, 7, np.nan, np.inf, 1]])
    values, indices = run_ours(top("nan", Arg(x), 4), backend)
    np.testing.assert_array_equal(values, np.float32([[np.nan, np.nan, np.inf, 7]]))
    np.testing.assert_array_equal(indices, [[1, 3, 4, 2]])


EDGE_CASES = [
    case("REVERSE_V2 -1", Op.REVERSE_V2, [random(3, 4), const([-1], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
