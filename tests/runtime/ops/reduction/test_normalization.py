"""L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import case, check, random

CASES = [
    case("L2_NORMALIZATION", Op.L2_NORMALIZATION, [random(2, 3, 4, 5)]),
    case("LRN", Op.LOCAL_RESPONSE_NORMALIZATION, [random(1, 3, 4, 9)],
         options={"radius": 2, "alpha": 0.3, "beta": 0.7, "bias": 1.1}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_normalization_matches_litert(case, backend):
    check(case, backend)
