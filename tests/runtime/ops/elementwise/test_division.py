"""Floored division, powers and angles against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out
from tests.runtime.ops.cases import case, check, random
from tests.runtime.ops.operands import whole

CASES = [
    case("FLOOR_DIV_float", Op.FLOOR_DIV, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_DIV_int32", Op.FLOOR_DIV, [whole(4, 5), whole(5, low=1)], (Out(np.int32),)),
    case("FLOOR_MOD_float", Op.FLOOR_MOD, [random(4, 5), random(5, seed=1)]),
    case("FLOOR_MOD_int64", Op.FLOOR_MOD, [whole(4, 5, dtype=np.int64), whole(5, dtype=np.int64, high=-1)],
         (Out(np.int64),)),
    case("POW", Op.POW, [random(4, 5, low=0.1), random(5, seed=1)]),
    case("POW_int32", Op.POW, [whole(4, 5, low=-5, high=6), whole(5, low=0, high=6)], (Out(np.int32),)),
    case("ATAN2", Op.ATAN2, [random(4, 5), random(4, 5, seed=1)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_division_matches_litert(case, backend):
    check(case, backend)
