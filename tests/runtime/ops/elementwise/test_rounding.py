"""Roundings and signs against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out
from tests.runtime.ops.cases import case, check

CASES = [
    *(case(o.name, o, [Arg(np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 3.2], np.float32))],
           resolver="BUILTIN")
      for o in (Op.FLOOR, Op.CEIL, Op.ROUND, Op.SIGN)),
    case("SIGN_int32", Op.SIGN, [Arg(np.array([[-(2**31)], [-7], [0], [5], [2**31 - 1]], np.int32))],
         [Out(np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rounding_matches_litert(case, backend):
    check(case, backend)
