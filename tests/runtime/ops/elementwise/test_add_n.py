"""ADD_N against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out
from tests.runtime.ops.cases import case, check, random
from tests.runtime.ops.operands import whole

CASES = [
    case("ADD_N", Op.ADD_N, [random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)]),
    case("ADD_N_of_two", Op.ADD_N, [random(2, 3, 5), random(2, 3, 5, seed=1)]),
    case("ADD_N_of_six", Op.ADD_N, [random(3, 7, seed=i) for i in range(6)]),
    case("ADD_N_of_seven", Op.ADD_N, [random(3, 7, seed=i) for i in range(7)]),
    case("ADD_N_int32", Op.ADD_N, [whole(3, 7, low=-(2**31), high=2**31, seed=i) for i in range(4)],
         [Out(np.int32)]),
    case("ADD_N_int32_of_eight", Op.ADD_N, [whole(2, 255, seed=i) for i in range(8)], [Out(np.int32)]),
    case("ADD_N_overflow", Op.ADD_N, [random(3, 7, seed=i, low=-3e38, high=3e38) for i in range(4)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_several_operands_match_litert(case, backend):
    check(case, backend)
