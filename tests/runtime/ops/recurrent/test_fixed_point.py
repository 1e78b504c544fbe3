"""Tables of 16-bit sigmoid and tanh against the functions, and layer normalisation against real numbers."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.ops.recurrent.fixed_point import (
    layer_norm,
    look_up,
    narrow,
    narrow_to_byte,
    sigmoid_table,
    tanh_table,
    times,
)
from runtime.ops.support.quantization import quantize_multiplier

LEVELS = np.arange(-32768, 32768)


def test_sigmoid_is_met_within_seven_levels_everywhere():
    """Sigmoid is as near as gemmlowp's polynomials come; the LSTMs of `test_integer_lstm.py` equal LiteRT."""
    exact = 32768 / (1 + np.exp(-LEVELS / 4096))
    assert np.abs(look_up(sigmoid_table(), LEVELS) - exact).max() <= 7


@pytest.mark.parametrize("integer_bits", range(7))
def test_tanh_is_met_within_thirteen_levels_everywhere_and_is_odd(integer_bits):
    found = look_up(tanh_table(integer_bits), LEVELS)
    assert np.abs(found - 32768 * np.tanh(LEVELS / 2.0 ** (15 - integer_bits))).max() <= 13
    np.testing.assert_array_equal(found[1:32768][::-1], -found[32769:])


def test_values_saturate_instead_of_wrapping():
    wide = np.array([-(1 << 40), -32769, -129, 0, 128, 32768, 1 << 40])
    assert narrow(wide).tolist() == [-32768, -32768, -129, 0, 128, 32767, 32767]
    assert narrow_to_byte(wide).tolist() == [-128, -128, -128, 0, 127, 127, 127]
    lowest = np.array([-32768])
    assert times(lowest, lowest).tolist() == [32767]


def test_rows_are_normalised_to_their_mean_and_deviation():
    rng = np.random.default_rng(0)
    x = rng.integers(-20000, 20000, (5, 64))
    weights, bias = rng.integers(-30000, 30000, 64), rng.integers(-(1 << 20), 1 << 20, 64)
    found = layer_norm(x, weights, bias, quantize_multiplier(2.0**-14), 1)
    normal = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    exact = np.clip((normal * 1024 * weights + bias) / 1024 * 2.0**-14 * 4096, -32768, 32767)
    assert np.abs(found - exact).max() <= 24
    assert np.abs(exact).max() > 10_000


def test_a_row_without_variance_is_its_bias():
    x = np.full((1, 8), 1000)
    found = layer_norm(x, np.full(8, 20000), np.arange(8) << 10, quantize_multiplier(2.0**-12), 1)
    assert found.tolist() == [list(range(8))]
