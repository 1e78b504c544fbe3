"""Natural inputs: smooth pictures, tonal sound, within the range of the input."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.measure.inputs import InputRule, make_pool
from runtime.measure.natural import natural

SHA = "ab" * 32


def last_set(shape, dtype=np.float32, scale=0.0, rule=None):
    detail = {"name": "x", "shape": np.array(shape), "dtype": dtype, "quantization": (scale, 0)}
    return make_pool([detail], SHA, {} if rule is None else {"x": rule}).sets[-1][0]


def roughness(values, axis):
    """Return the difference of neighbours, as a share of that of any two values: 1 for noise."""
    return float(np.abs(np.diff(values.astype(float), axis=axis)).mean() / (1.13 * values.std()))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 64, 48, 3), 1), ((2, 32, 32, 1), 2), ((1, 3, 64, 64), 3), ((1, 16000), 1), ((15600,), 0)],
)
@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 0.0), (np.uint8, 0.1), (np.int8, 0.1)])
def test_pictures_and_sounds_are_smooth_and_span_the_range(shape, axis, dtype, scale):
    got = last_set(shape, dtype, scale)
    assert (got.shape, got.dtype) == (shape, dtype)
    assert roughness(got, axis) < 0.35
    low, high = (-1, 1) if dtype == np.float32 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert low <= got.min() < got.max() <= high
    assert np.ptp(got.astype(float)) > 0.7 * (high - low)


def test_a_rule_sets_the_range_of_a_picture():
    got = last_set((1, 32, 32, 3), rule=InputRule(low=0.0, high=255.0))
    assert (got.min(), got.max()) == (0.0, 255.0)


@pytest.mark.parametrize("shape", [(1, 640), (1, 8, 8, 3), (1, 32, 32, 16), (4, 20, 20), ()])
def test_what_is_neither_is_noise(shape):
    assert natural(np.random.default_rng(1), shape) is None
    assert last_set(shape).shape == shape


def test_colours_and_pictures_of_a_batch_differ():
    got = last_set((2, 32, 32, 3))
    assert not np.allclose(got[0], got[1])
    assert not np.allclose(got[..., 0], got[..., 1])
