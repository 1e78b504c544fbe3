"""Logic and shifts of bits against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out
from tests.runtime.ops.cases import case, check
from tests.runtime.ops.operands import flags, whole

BOOL = (Out(np.bool_),)
CASES = [
    case("LOGICAL_AND", Op.LOGICAL_AND, [flags(4, 5), flags(5)], BOOL),
    case("LOGICAL_OR", Op.LOGICAL_OR, [flags(4, 5), flags(5)], BOOL),
    case("LOGICAL_NOT", Op.LOGICAL_NOT, [flags(4, 5)], BOOL),
    case("LOGICAL_AND_rank_4", Op.LOGICAL_AND, [flags(2, 1, 3, 5), flags(4, 1, 1)], BOOL),
    case("LOGICAL_OR_of_one", Op.LOGICAL_OR, [flags(3, 255), flags()], BOOL),
    case("BITWISE_XOR", Op.BITWISE_XOR, [whole(3, 4), whole(4)], (Out(np.int32),)),
    case("RIGHT_SHIFT", Op.RIGHT_SHIFT, [whole(3, 4), whole(4, low=0, high=40)], (Out(np.int32),)),
    case("RIGHT_SHIFT_beyond", Op.RIGHT_SHIFT, [whole(3, 4), whole(3, 4, low=-40)], (Out(np.int32),)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_logic_matches_litert(case, backend):
    check(case, backend)
