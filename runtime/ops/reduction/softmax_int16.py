"""SOFTMAX of int16 levels: two interpolated tables (`reference/softmax.h`, SoftmaxInt16)."""

import numpy as np

from runtime.ops.support import Array, Kernel, OpContext
from runtime.ops.support.lookup import interpolated, lookup_table
from runtime.ops.support.quantization import multiply_by_quantized_multiplier, quantize_multiplier

_LOW, _HIGH = -32768, 32767


def softmax_int16(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of x, y [rows, classes]. Differences of -10 and below count as -10.

    exp is tabulated over [-10, 0], 1 / (1 + x) over [0, 1]. Raises `UnsupportedOperatorError` for an output
    scale other than 1/32768.
    """
    in_scale, _ = op.scale_and_zero_point(op.input())
    if op.scale_and_zero_point(op.output()) != (1 / 32768, 0):
        raise op.unsupported("an int16 output scale other than 1/32768")
    real = in_scale * float(np.float32(op.option("beta"))) / (10.0 / 65535.0)
    multiplier = quantize_multiplier(real)
    exponentials = lookup_table(-10.0, 0.0, np.exp, real=np.float64)
    reciprocals = lookup_table(0.0, 1.0, _reciprocal, real=np.float64)

    def run() -> None:
        below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
        scaled = multiply_by_quantized_multiplier(below, *multiplier)
        numerators = interpolated(np.clip(scaled + _HIGH, _LOW, _HIGH), exponentials)
        sums = numerators.sum(axis=1, keepdims=True)
        # The sum is brought to [1, 2) by its leading zeros; its fraction, centred to int16, indexes the
        # table.
        headroom = 32 - np.frexp(sums.astype(np.float64))[1].astype(np.int64)
        shifted = ((sums << (headroom - 1)) + (1 << 13)) >> 14
        centred = np.clip(shifted - ((1 << 15) + (1 << 16)), _LOW, _HIGH)
        right = 31 - headroom
        half = np.int64(1) << (right - 1)
        products = (numerators * interpolated(centred, reciprocals) + half) >> right
        np.clip(products, 0, _HIGH, out=y, casting="unsafe")

    return run


def _reciprocal(x: Array) -> Array:
    return np.asarray(1 / (1 + x))
