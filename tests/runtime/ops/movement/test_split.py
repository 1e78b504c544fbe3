"""SPLIT, SPLIT_V and UNPACK against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const
from tests.runtime.ops.cases import CPU, case, check, random
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
def test_every_type_moves_as_litert_does(movement, tensor_type):
    moves_as_litert(movement, tensor_type)


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_split_matches_litert(case, backend):
    check(case, backend)
