"""The clamp at the end of float and integer kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import UnsupportedOperatorError
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.ops.support.fused_activation import LARGEST, clamp_floats, fused_clamp
from tests.runtime.ops.contexts import bound, context

BOUNDS = {
    Activation.RELU: (0, np.inf),
    Activation.RELU6: (0, 6),
    Activation.RELU_N1_TO_1: (-1, 1),
}


def clamped(values: np.ndarray, activation: Activation) -> np.ndarray:
    y = values.copy()
    fused_clamp(context(outputs=[bound(y)], options={"fused_activation_function": activation}))(y)
    return y


@pytest.mark.parametrize("activation", BOUNDS, ids=lambda a: a.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int64])
def test_values_are_clamped_to_the_range_of_the_activation(activation, dtype):
    values = np.arange(-9, 10).astype(dtype)
    np.testing.assert_array_equal(clamped(values, activation), np.clip(values, *BOUNDS[activation]))


def test_what_overflowed_becomes_the_largest_number_and_nan_stays():
    values = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    clamp_floats(values, None)
    np.testing.assert_array_equal(values, np.array([LARGEST, -LARGEST, np.nan, 1], np.float32))
    np.testing.assert_array_equal(clamped(np.array([np.inf, 2], np.float16), Activation.NONE), [65504, 2])


def test_integers_are_left_alone_without_an_activation():
    values = np.array([np.iinfo(np.int64).min, 0, np.iinfo(np.int64).max])
    np.testing.assert_array_equal(clamped(values, Activation.NONE), values)


def test_complex_numbers_have_no_order_to_be_clamped_in():
    values = np.array([1 + 2j], np.complex64)
    np.testing.assert_array_equal(clamped(values, Activation.NONE), values)
    with pytest.raises(UnsupportedOperatorError, match="a fused activation on COMPLEX64"):
        clamped(values, Activation.RELU)
