"""LOG_SOFTMAX in float and of levels, against LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, random
from tests.runtime.ops.operands import whole


def quantised(dtype: Any, seed: int) -> Case:
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    form = per_tensor(float(np.exp(rng.uniform(-5, 0))), int(rng.integers(info.min, info.max)))
    x = whole(300, int(rng.integers(2, 30)), dtype=dtype, low=info.min, high=info.max + 1, quantization=form,
              seed=seed)  # fmt: skip
    out = Out(dtype, per_tensor(1 / 16, info.max))
    return case(f"{info.dtype}_{seed}", Op.LOG_SOFTMAX, [x], [out], version=2)


CASES = [
    case("log_softmax", Op.LOG_SOFTMAX, [random(3, 17, low=-20, high=20)]),
    case("one_class", Op.LOG_SOFTMAX, [random(4, 1)]),
    case("image", Op.LOG_SOFTMAX, [random(2, 3, 4, 5, low=-50, high=50)]),
    case("many_classes", Op.LOG_SOFTMAX, [random(3, 255, low=-9, high=9)]),
    case("vector", Op.LOG_SOFTMAX, [random(32)]),
    case("rank_5", Op.LOG_SOFTMAX, [random(2, 1, 3, 2, 7)]),
]
FORMS = [
    *(quantised(dtype, seed) for dtype in (np.int8, np.uint8) for seed in range(6)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_log_softmax_matches_litert(case, backend):
    check(case, backend)


@pytest.mark.parametrize("case", FORMS, ids=str)
def test_other_forms_and_levels_match_litert(case):
    check(case, CPU)
