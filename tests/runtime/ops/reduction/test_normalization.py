"""L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import case, check, random

CASES = [
    case("L2_NORMALIZATION", Op.L2_NORMALIZATION, [random(2, 3, 4, 5)]),
    case("L2_of_small_rows", Op.L2_NORMALIZATION, [random(4, 1, 3, 255, low=-1e-8, high=1e-8)]),
    case("L2_of_single_channels", Op.L2_NORMALIZATION, [random(3, 2, 5, 1)]),
    case("L2_of_vectors", Op.L2_NORMALIZATION, [random(4, 2, 2, 48)]),
    *(
        case(f"LRN_{channels}_{radius}", Op.LOCAL_RESPONSE_NORMALIZATION, [random(2, 3, 2, channels)],
             options={"radius": radius, "alpha": 0.1, "beta": 0.75, "bias": 2.0})
        for channels, radius in ((1, 1), (7, 9), (16, 5), (33, 0), (255, 3))
    ),
    case("LRN", Op.LOCAL_RESPONSE_NORMALIZATION, [random(1, 3, 4, 9)],
         options={"radius": 2, "alpha": 0.3, "beta": 0.7, "bias": 1.1}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_normalization_matches_litert(case, backend):
    check(case, backend)
