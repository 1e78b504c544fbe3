"""Softmax against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, levels, random
from tests.runtime.ops.operands import whole


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


def softmax_uint8(classes: int, scale: float) -> Case:
    x = whole(90, classes, dtype=np.uint8, low=0, high=256, quantization=per_tensor(scale, 77))
    return case(f"uint8_{classes}", Op.SOFTMAX, [x], [Out(np.uint8, per_tensor(1 / 256))], {"beta": 1.0})


BYTES = [softmax_uint8(3, 0.2), softmax_uint8(1001, 0.06)]


@pytest.mark.parametrize("case", BYTES, ids=str)
def test_levels_of_uint8_are_those_of_litert(case):
    check(case, CPU)


def softmax_int16(name: str, levels: np.ndarray, scale: float, beta: float = 1.0) -> Case:
    args = [Arg(levels, per_tensor(scale))]
    return case(name, Op.SOFTMAX, args, [Out(np.int16, per_tensor(1 / 32768))], {"beta": beta}, version=3)


def wide_levels(*shape: int) -> np.ndarray:
    return whole(*shape, dtype=np.int16, low=-32768, high=32768).value


WIDE = [
    *(
        softmax_int16(f"scale_{scale:.3g}", wide_levels(50, 11), scale)
        for scale in (1e-5, 1e-4, 3e-4, 1e-3, 0.02)
    ),
    softmax_int16("beta", wide_levels(20, 7), 1e-4, beta=2.5),
    softmax_int16("one_class", wide_levels(9, 1), 1e-3),
    softmax_int16("many_classes", wide_levels(3, 1000), 2e-4),
    softmax_int16("equal", np.full((4, 8), 77, np.int16), 1e-3),
    softmax_int16("image", wide_levels(2, 3, 4, 5), 1e-4),
]


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_wide_levels_are_those_of_litert(case):
    check(case, CPU)
