"""SOFTMAX along the last axis."""

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, TensorType, operator, quantization
from runtime.ops.support.blocks import BLOCK_ELEMENTS
from runtime.ops.support.levels import reciprocal
from runtime.ops.support.lookup import interpolated, lookup_table
from runtime.ops.support.shapes import same_shape

_TYPES = (TensorType.FLOAT32, TensorType.FLOAT16, *QUANTIZED)


def _rows(op: OpContext) -> tuple[Array, Array]:
    if not op.input().shape:
        raise op.error("a scalar has no axis to normalise")
    classes = op.input().shape[-1]
    return op.read(0).reshape(-1, classes), op.write().reshape(-1, classes)


@operator(Op.SOFTMAX, max_version=4, infer=same_shape, types=_TYPES)
def softmax(op: OpContext) -> Kernel:
    """SOFTMAX: exp(beta * (x - max)) / sum along the last axis; float32, float16, int8, uint8, int16.

    beta is used as stored, 0 included. The output of int8 or uint8 may also be int16.
    """
    x, y = _rows(op)
    kind = op.input().type
    if kind is TensorType.INT16:
        op.require_same_type(0)
        return softmax_int16(op, x, y)
    if kind in (TensorType.INT8, TensorType.UINT8):
        return _softmax_bytes(op, x, y)
    op.require_same_type(0)
    if kind is TensorType.FLOAT16:
        return _softmax_halves(op, x, y)
    beta = np.float32(op.option("beta"))
    step = max(1, BLOCK_ELEMENTS // max(1, x.shape[1]))
    column = op.temporary((min(step, len(x)), 1))
    blocks = [
        (x[i : i + step], y[i : i + step], column[: len(x[i : i + step])]) for i in range(0, len(x), step)
    ]

    def run() -> None:
        for given, out, one in blocks:
            np.maximum.reduce(given, axis=1, out=one, keepdims=True)
            np.subtract(given, one, out=out)
            if beta != 1:
                np.multiply(out, beta, out=out)
            np.exp(out, out=out)
            np.add.reduce(out, axis=1, out=one, keepdims=True)
            np.divide(out, one, out=out)

    return run


def _softmax_halves(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of float16, which is computed in single precision and rounded at the end."""
    beta = np.float32(op.option("beta"))

    def run() -> None:
        wide = x.astype(np.float32)
        wide = np.exp((wide - wide.max(axis=1, keepdims=True)) * beta)
        np.copyto(y, wide / wide.sum(axis=1, keepdims=True), casting="same_kind")

    return run


_OUTPUTS = {
    TensorType.INT8: (8, 1 / 256, -128),
    TensorType.UINT8: (8, 1 / 256, 0),
    TensorType.INT16: (16, 1 / 65536, -32768),
}
"""Bits of each output type, and the scale and zero point that LiteRT's kernel asks for."""


def _softmax_bytes(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of int8 and uint8 (`reference/softmax.h`): exponentials in Q0.31, sums in Q12.19.

    Each exponential is rounded to Q12.19 before it is added, and one reciprocal per row multiplies all. The
    12 integer bits of the sum hold 4096 classes.
    """
    in_scale, _ = op.scale_and_zero_point(op.input())
    width, scale, lowest = _OUTPUTS.get(op.output().type, (0, 0.0, 0))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    if not width or out_zero != lowest or abs(out_scale - scale) > scale / 1000:
        raise op.unsupported(f"an output other than with scale {scale} and zero point {lowest}")
    if x.shape[1] > 1 << 12:
        raise op.unsupported("more than 4096 classes of 8-bit levels")
    # PreprocessSoftmaxScaling of `quantization_util.cc`: differences in Q5.26, 31 - 5 bits behind the point.
    real = float(np.float32(op.option("beta"))) * in_scale * (1 << 26)
    if real < 1:
        raise op.unsupported(f"beta times scale of {real / (1 << 26)}, below the fixed-point grid")
    table = exponentials(real)
    highest = lowest + (1 << width) - 1

    def run() -> None:
        below = x.max(axis=1, keepdims=True).astype(np.intp) - x
        exponentials = table[below]
        sums = quantization.rounding_shift_right(exponentials, 12).sum(axis=1, keepdims=True)
        inverse, bits = reciprocal(sums, 12)
        scaled = quantization.saturating_doubling_high_mul(exponentials, inverse)
        levels = quantization.rounding_shift_right(scaled, bits + 31 - width) + lowest
        np.clip(levels, lowest, highest, out=y, casting="unsafe")

    return run


def exponentials(real: float) -> Array:
    """Return exp(-k * real) in Q0.31 for k in 0..255, real in Q5.26; int64 [256].

    It is 0 beyond the difference that Q5.26 can hold, which the reference does not count.
    """
    multiplier, shift = quantization.quantize_multiplier(min(real, 2.0**31 - 1))
    k = np.arange(256, dtype=np.int64)
    # CalculateInputRadius of `quantization_util.cc` for 5 integer bits.
    counted = k <= (31 << 26) >> shift
    scaled = quantization.saturating_doubling_high_mul(-np.where(counted, k, 0) << shift, multiplier)
    return np.where(counted, quantization.fixed_point_exp(scaled), 0)


_LOW, _HIGH = -32768, 32767


def softmax_int16(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of x, y [rows, classes]. Differences of -10 and below count as -10.

    exp is tabulated over [-10, 0], 1 / (1 + x) over [0, 1]. Raises `UnsupportedOperatorError` for an output
    scale other than 1/32768.
    """
    in_scale, _ = op.scale_and_zero_point(op.input())
    if op.scale_and_zero_point(op.output()) != (1 / 32768, 0):
        raise op.unsupported("an int16 output scale other than 1/32768")
    # 65535 units make 10, the width of the table of exp; `_HIGH` then centres them to int16.
    real = in_scale * float(np.float32(op.option("beta"))) / (10.0 / 65535.0)
    multiplier = quantization.quantize_multiplier(real)
    exponentials = lookup_table(-10.0, 0.0, np.exp, real=np.float64)
    reciprocals = lookup_table(0.0, 1.0, lambda x: np.asarray(1 / (1 + x)), real=np.float64)

    def run() -> None:
        below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
        scaled = quantization.multiply_by_quantized_multiplier(below, *multiplier)
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
