"""Softmax against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Out, per_tensor
from tests.runtime.ops.cases import Case, case, check, levels, random


def softmax(name, shape, beta=1.0) -> Case:
    return case(name, BuiltinOperator.SOFTMAX, [random(*shape, low=-20, high=20)], options={"beta": beta})


def softmax_int8(seed) -> Case:
    rng = np.random.default_rng(seed)
    q = per_tensor(float(np.exp(rng.uniform(-7, 1))), int(rng.integers(-128, 128)))
    args = [levels(2000, int(rng.integers(2, 40)), seed=seed, quantization=q)]
    out = Out(np.int8, per_tensor(1 / 256, -128))
    return case(f"int8_{seed}", BuiltinOperator.SOFTMAX, args, [out], {"beta": 1.0}, version=2)


CASES = [
    softmax("softmax_2d", (3, 11)),
    softmax("softmax_4d", (1, 4, 5, 21)),
    softmax("softmax_beta", (2, 6), beta=0.3),
    softmax("softmax_one_class", (4, 1)),
    softmax("softmax_long", (1, 1000)),
    *(softmax_int8(seed) for seed in range(12)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_softmax_matches_litert(case, backend):
    check(case, backend)
