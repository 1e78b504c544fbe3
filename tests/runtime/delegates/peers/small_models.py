"""Small models that every peer can run, and some that one cannot."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.models import Builder


def conv_model(channels: int = 16) -> bytes:
    """Build a convolution with ReLU and a sum with its input, on an image whose height and width may
    change.
    """
    b, random = Builder(), np.random.default_rng(7)
    x = b.input(np.float32, (1, 8, 8, channels), shape_signature=(1, -1, -1, channels), name="image")
    weights = random.standard_normal((channels, 3, 3, channels)).astype(np.float32) / 12
    hidden, y = (
        b.tensor(np.float32, (1, 8, 8, channels)),
        b.tensor(np.float32, (1, 8, 8, channels), name="sum"),
    )
    options = {"padding": Padding.SAME, "stride_w": 1, "stride_h": 1, "fused_activation_function": 1}
    options |= {"dilation_w_factor": 1, "dilation_h_factor": 1}
    bias = b.constant(random.standard_normal(channels).astype(np.float32))
    b.operator(Op.CONV_2D, [x, b.constant(weights), bias], [hidden], options)
    b.operator(Op.ADD, [hidden, x], [y])
    return b.write([y])


def image(height: int = 8, width: int = 8, channels: int = 16) -> np.ndarray:
    """Return an input for `conv_model`."""
    return np.random.default_rng(8).standard_normal((1, height, width, channels)).astype(np.float32)


def variable_model() -> bytes:
    """Build a sum with a variable, which no operator assigns."""
    b = Builder()
    x, y = b.input(np.float32, (1, 4), name="x"), b.tensor(np.float32, (1, 4))
    b.operator(Op.ADD, [x, b.tensor(np.float32, (1, 4), is_variable=True)], [y])
    return b.write([y])


def wide_integer_model() -> bytes:
    """Build a sum of an int64 input with itself."""
    b = Builder()
    x, y = b.input(np.int64, (1, 4), name="x"), b.tensor(np.int64, (1, 4))
    b.operator(Op.ADD, [x, x], [y])
    return b.write([y])
