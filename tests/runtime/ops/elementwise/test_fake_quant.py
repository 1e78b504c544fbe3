"""FAKE_QUANT against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import case, check, random

CASES = [
    case("FAKE_QUANT", Op.FAKE_QUANT, [random(300, low=-4, high=4)],
         options={"min": -1.3, "max": 2.9, "num_bits": 8, "narrow_range": False}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_simulated_levels_match_litert(case, backend):
    check(case, backend)
