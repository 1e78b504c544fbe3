"""The fixed-point arithmetic against plain integer arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.ops.support.quantization import (
    Requantizer,
    activation_range,
    multiply_by_quantized_multiplier,
    quantize,
    quantize_multiplier,
    quantize_multipliers,
    round_half_away,
)

REALS = st.floats(1e-9, 7.9, allow_nan=False)


def exact(x: int, multiplier: int, shift: int) -> int:
    """Apply the two roundings in unbounded integers: half towards +infinity, then half away from zero."""
    high = (x * (1 << max(shift, 0)) * multiplier + (1 << 30)) >> 31
    right = max(-shift, 0)
    magnitude = (abs(high) + (1 << right >> 1)) >> right
    return magnitude if high >= 0 else -magnitude


@given(REALS)
def test_multiplier_represents_the_number(real):
    multiplier, shift = quantize_multiplier(real)
    assert 1 << 30 <= multiplier < 1 << 31
    assert math.isclose(multiplier * 2.0 ** (shift - 31), real, rel_tol=2.0**-30)


def test_multiplier_of_tiny_numbers_is_zero():
    assert quantize_multiplier(0.0) == (0, 0)
    assert quantize_multiplier(2.0**-40) == (0, 0)


@given(st.lists(st.integers(-(2**26), 2**26), min_size=1), REALS)
def test_product_is_that_of_unbounded_integers(values, real):
    multiplier, shift = quantize_multiplier(real)
    found = multiply_by_quantized_multiplier(np.array(values), multiplier, shift)
    assert found.tolist() == [exact(v, multiplier, shift) for v in values]


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(8, 40))]
)
@pytest.mark.parametrize("largest", [2**21, 2**29])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_requantizer_equals_the_two_roundings(seed, largest, dtype):
    """Sums within 2^21 take the way of one product."""
    rng = np.random.default_rng(seed)
    reals = np.exp(rng.uniform(-12, 1.5, 8))
    reals[:2] = 2.0 ** -rng.integers(0, 12, 2).astype(float)
    if seed % 4 == 0:
        reals[:] = reals[0]
    multipliers, shifts = quantize_multipliers(reals)
    bounds = np.iinfo(dtype)
    limit = np.minimum(largest, 1.2 * bounds.max / reals).astype(np.int64)
    acc = rng.integers(-limit, limit + 1, (3000, 8))
    offset = rng.integers(-limit // 4, limit // 4 + 1)
    sums = (acc - offset).astype(np.float32 if np.abs(acc - offset).max() < 2**24 else np.float64)
    zero = 0 if dtype is np.int16 else -9
    clamp = (bounds.min + 3, bounds.max)
    expected = np.clip(multiply_by_quantized_multiplier(acc, multipliers, shifts) + zero, *clamp)
    most = float(np.abs(sums).max() + np.abs(offset).max())
    for bound in {most, 2.0**31}:
        for repeats in (1, 5):
            out = np.empty(acc.shape, dtype)
            work = np.empty(2 * acc.size)
            stage = Requantizer(multipliers, shifts, zero, clamp, work, offset, limit=bound, repeats=repeats)
            stage(sums, out)
            np.testing.assert_array_equal(out, expected)


def test_rounding_goes_away_from_zero():
    values = np.array([-2.5, -1.5, -0.5, -0.4, 0.4, 0.5, 1.5, 2.5])
    assert round_half_away(values).tolist() == [-3, -2, -1, 0, 0, 1, 2, 3]


def test_quantize_clamps_to_the_type():
    levels = quantize(np.array([-1e9, -0.05, 0.0, 0.05, 1e9]), 0.1, 5, TensorType.INT8)
    assert levels.tolist() == [-128, 4, 5, 6, 127]


@pytest.mark.parametrize(
    ("activation", "expected"),
    [("NONE", (-128, 127)), ("RELU", (-10, 127)), ("RELU6", (-10, 50)), ("RELU_N1_TO_1", (-20, 0))],
)
def test_activation_range_in_levels(activation, expected):
    found = activation_range(ActivationFunctionType[activation], 0.1, -10, TensorType.INT8)
    assert found == expected
