"""ADD_N against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import case, check, random

CASES = [
    case("ADD_N", Op.ADD_N, [random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_several_operands_match_litert(case, backend):
    check(case, backend)
