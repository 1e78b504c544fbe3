"""ARG_MAX and ARG_MIN against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const
from tests.runtime.ops.cases import CPU, case, check, random
from tests.runtime.ops.operands import axis, whole

EDGE_CASES = [
    case("ARG_MAX -2", Op.ARG_MAX, [random(3, 4), const(-2, np.int32)], [Out(np.int64)],
         options={"output_type": 4}),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


CASES = [
    case("ARG_MAX", Op.ARG_MAX, [random(3, 5, 2), axis(1)], (Out(np.int64),), {"output_type": 4}),
    case("ARG_MIN_ties", Op.ARG_MIN, [whole(4, 9, low=0, high=3), axis(-1)], (Out(np.int32),),
         {"output_type": 2}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_indices_of_extrema_match_litert(case, backend):
    check(case, backend)
