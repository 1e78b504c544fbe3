"""SELECT and SELECT_V2 against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import case, check, random
from tests.runtime.ops.operands import flags

CASES = [
    case("SELECT", Op.SELECT, [flags(3, 4), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_rows", Op.SELECT, [flags(3), random(3, 4), random(3, 4, seed=1)]),
    case("SELECT_V2", Op.SELECT_V2, [flags(3, 1), random(4), random(2, 1, 4, seed=1)]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_selection_matches_litert(case, backend):
    check(case, backend)
