"""SOFTMAX and LOG_SOFTMAX along the last axis."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.shapes import same_shape
from runtime.ops.softmax_int16 import softmax_int16
from runtime.ops.spec import Array, Kernel, OpContext, operator
from runtime.ops.type_sets import QUANTIZED
from runtime.quantization import (
    fixed_point_exp,
    quantize_multiplier,
    rounding_shift_right,
    saturating_doubling_high_mul,
)

# In Q2.29, as gemmlowp's `fixedpoint.h` starts its division.
_48_OVER_17 = 1515870810
_32_OVER_17 = 1010580540


def _rows(op: OpContext, *kinds: TensorType) -> tuple[Array, Array]:
    """Input and output as [rows, classes]."""
    op.require(*kinds)
    if not op.input().shape:
        raise op.error("a scalar has no axis to normalise")
    classes = op.input().shape[-1]
    return op.read(0).reshape(-1, classes), op.write().reshape(-1, classes)


@operator(BuiltinOperator.SOFTMAX, max_version=4, infer=same_shape, types=(TensorType.FLOAT32, *QUANTIZED))
def softmax(op: OpContext) -> Kernel:
    """exp(beta * (x - max)) / sum; beta is taken as stored. Of 8-bit levels the output may be int16 too."""
    x, y = _rows(op, TensorType.FLOAT32, *QUANTIZED)
    kind = op.input().type
    if kind is TensorType.INT16:
        op.require_same_type(0)
        return softmax_int16(op, x, y)
    if kind is not TensorType.FLOAT32:
        return _softmax_bytes(op, x, y)
    op.require_same_type(0)
    column, beta = op.temporary((len(x), 1)), np.float32(op.option("beta"))

    def run() -> None:
        np.maximum.reduce(x, axis=1, out=column, keepdims=True)
        np.subtract(x, column, out=y)
        np.multiply(y, beta, out=y)
        np.exp(y, out=y)
        np.add.reduce(y, axis=1, out=column, keepdims=True)
        np.divide(y, column, out=y)

    return run


# Bits of an output, its scale and its lowest level.
_OUTPUTS = {
    TensorType.INT8: (8, 1 / 256, -128),
    TensorType.UINT8: (8, 1 / 256, 0),
    TensorType.INT16: (16, 1 / 65536, -32768),
}


def _softmax_bytes(op: OpContext, x: Array, y: Array) -> Kernel:
    """`reference/softmax.h`: exponentials in Q0.31, their sum in Q12.19, one reciprocal per row."""
    in_scale, _ = op.scale_and_zero_point(op.input())
    width, scale, lowest = _OUTPUTS.get(op.output().type, (0, 0.0, 0))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    if not width or out_zero != lowest or abs(out_scale - scale) > scale / 1000:
        raise op.unsupported(f"an output other than with scale {scale} and zero point {lowest}")
    if x.shape[1] > 1 << 12:
        raise op.unsupported("more than 4096 classes of 8-bit levels")
    real = float(np.float32(op.option("beta"))) * in_scale * (1 << 26)
    if real < 1:
        raise op.unsupported(f"beta times scale of {real / (1 << 26)}, below the fixed-point grid")
    table = _exponentials(real)
    highest = lowest + (1 << width) - 1

    def run() -> None:
        below = x.max(axis=1, keepdims=True).astype(np.intp) - x
        exponentials = table[below]
        sums = rounding_shift_right(exponentials, 12).sum(axis=1, keepdims=True)
        reciprocal, bits = _reciprocal(sums)
        scaled = saturating_doubling_high_mul(exponentials, reciprocal)
        levels = rounding_shift_right(scaled, bits + 31 - width) + lowest
        np.clip(levels, lowest, highest, out=y, casting="unsafe")

    return run


def _exponentials(real: float) -> Array:
    """exp(-k * real) in Q0.31 for k in 0..255 with real in Q5.26; 0 where the reference counts no more."""
    multiplier, shift = quantize_multiplier(min(real, 2.0**31 - 1))
    k = np.arange(256, dtype=np.int64)
    counted = k <= (31 << 26) >> shift
    scaled = saturating_doubling_high_mul(-np.where(counted, k, 0) << shift, multiplier)
    return np.where(counted, fixed_point_exp(scaled), 0)


def _reciprocal(total: Array) -> tuple[Array, Array]:
    """(2 / (1 + fraction) in Q0.31, bits of the integer part) of a sum in Q12.19, by three Newton steps."""
    headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    half = ((total << headroom) - (1 << 31) + (2**31 - 1) + 1) // 2
    x = _48_OVER_17 - saturating_doubling_high_mul(half, _32_OVER_17)
    for _ in range(3):
        error = (1 << 29) - saturating_doubling_high_mul(half, x)
        x = x + (saturating_doubling_high_mul(x, error) << 2)
    return np.minimum(x << 1, 2**31 - 1), 12 - headroom


@operator(BuiltinOperator.LOG_SOFTMAX, max_version=2, infer=same_shape, types=(TensorType.FLOAT32,))
def log_softmax(op: OpContext) -> Kernel:
    """x - max - log(sum(exp(x - max))). float32."""
    x, y = _rows(op, TensorType.FLOAT32)
    op.require_same_type(0)
    column, exponentials = op.temporary((len(x), 1)), op.temporary(x.shape)

    def run() -> None:
        np.maximum.reduce(x, axis=1, out=column, keepdims=True)
        np.subtract(x, column, out=y)
        np.exp(y, out=exponentials)
        np.add.reduce(exponentials, axis=1, out=column, keepdims=True)
        np.log(column, out=column)
        np.subtract(y, column, out=y)

    return run
