"""SHAPE, RANK and BROADCAST_ARGS against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Arg, Out
from tests.runtime.ops.cases import CPU, Case, case, check, random
from tests.runtime.ops.every_type import Movement, every_type, moves_as_litert

MOVEMENTS = [
    Movement("shape", Op.SHAPE, lambda v: ([v.arg(2, 3)], [Out(np.int32)], {"out_type": TensorType.INT32})),
    Movement("shape64", Op.SHAPE, lambda v: ([v.arg(2)], [Out(np.int64)], {"out_type": TensorType.INT64})),
    Movement("rank", Op.RANK, lambda v: ([v.arg(2, 3, 1)], [Out(np.int32)], {})),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


EDGE_CASES = [
    case("RANK of a scalar", Op.RANK, [random()], [Out(np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


def broadcast_shapes(left, right, dtype=np.int32) -> Case:
    args = [Arg(np.array(v, dtype)) for v in (left, right)]
    return case(f"args_{left}_{right}", Op.BROADCAST_ARGS, args, [Out(dtype)])


BROADCAST_ARGS = [
    broadcast_shapes([3, 1], [2, 3, 4]),
    broadcast_shapes([5], [1]),
    broadcast_shapes([7, 1, 5], [1, 4, 5], np.int64),
    broadcast_shapes([], [2, 2]),
]  # fmt: skip


@pytest.mark.parametrize("case", BROADCAST_ARGS, ids=str)
def test_broadcast_shapes_are_those_of_litert(case):
    check(case, CPU)


CASES = [
    case("shape", Op.SHAPE, [random(3, 4, 5)], [Out(np.int32)],
         {"out_type": TensorType.INT32}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shape_matches_litert(case, backend):
    check(case, backend)
