"""TILE and BROADCAST_TO against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import const
from tests.runtime.ops.cases import CPU, case, check, random
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


EDGE_CASES = [
    case("TILE", Op.TILE, [random(2, 3), const([0, 2], np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)
