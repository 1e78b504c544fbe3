"""LOG_SOFTMAX along the last axis; int8 in fixed point (`reference/integer_ops/log_softmax.h`)."""

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.levels import reciprocal
from runtime.ops.support.quantization import (
    RANGES,
    fixed_point_exp,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_shift_right,
    saturating_doubling_high_mul,
)
from runtime.ops.support.shapes import same_shape

_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8)
_OUT_SCALE = 16 / 256
"""The one output scale that LiteRT's kernels accept: 256 levels from -16 to 0."""

_ZERO_POINTS = {TensorType.INT8: 127, TensorType.UINT8: 255}
"""The zero point that goes with it: the highest level, as no logarithm of a probability is positive."""

_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_INTEGER_BITS, _SUM_BITS, _OUT_BITS = 5, 12, 4
"""Integer bits of differences (Q5.26), of sums of exponentials (Q12.19), and of the output's scale, 2^4 / 256
(`kInputIntegerBits`, `kAccumulationIntegerBits` and `kOutputIntegerBits` of the reference)."""


@operator(Op.LOG_SOFTMAX, max_version=2, infer=same_shape, types=_TYPES)
def log_softmax(op: OpContext) -> Kernel:
    """LOG_SOFTMAX: x - max - log(sum(exp(x - max))) along the last axis; float32, int8, uint8.

    Quantised outputs have scale 1/16 and end at 0.
    """
    kind = op.input().type
    op.require_same_type(0)
    if not op.input().shape:
        raise op.error("a scalar has no axis to normalise")
    classes = op.input().shape[-1]
    x, y = op.read(0).reshape(-1, classes), op.write().reshape(-1, classes)
    if kind is not TensorType.FLOAT32:
        if op.scale_and_zero_point(op.output()) != (_OUT_SCALE, _ZERO_POINTS[kind]):
            raise op.unsupported("an output other than with scale 1/16 and the highest zero point")
        return _of_signed(op, x, y) if kind is TensorType.INT8 else _of_unsigned(op, x, y)
    column, exponentials = op.temporary((len(x), 1)), op.temporary(x.shape)

    def run() -> None:
        np.maximum.reduce(x, axis=1, out=column, keepdims=True)
        np.subtract(x, column, out=y)
        np.exp(y, out=exponentials)
        np.add.reduce(exponentials, axis=1, out=column, keepdims=True)
        np.log(column, out=column)
        np.subtract(y, column, out=y)

    return run


def _of_unsigned(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of uint8, for which LiteRT has none in fixed point.

    Exponentials come from a table, the rest is in single precision. The sum is accumulated one class after
    the other, as in LiteRT; numpy's pairwise sum would round differently.
    """
    scale, _ = op.scale_and_zero_point(op.input())
    table = np.exp(-np.float32(scale) * np.arange(256, dtype=np.float32))
    ratio = np.float32(scale) / np.float32(_OUT_SCALE)

    def run() -> None:
        top = x.max(axis=1, keepdims=True)
        sums = np.add.accumulate(table[top.astype(np.intp) - x], axis=1)[:, -1:]
        shift = (top.astype(np.float32) * np.float32(scale) + np.log(sums)) / np.float32(_OUT_SCALE)
        levels = np.rint(x.astype(np.float32) * ratio - shift) + _ZERO_POINTS[TensorType.UINT8]
        np.clip(levels, 0, 255, out=y, casting="unsafe")

    return run


def _of_signed(op: OpContext, x: Array, y: Array) -> Kernel:
    """Return the kernel of int8, in fixed point (`reference/integer_ops/log_softmax.h`).

    A difference of two int8 levels has 256 values, for which exponentials are tabulated; differences beyond
    `radius` would leave Q5.26 and do not count.
    """
    scale, _ = op.scale_and_zero_point(op.input())
    multiplier, shift = quantize_multiplier(min(scale * 2.0 ** (31 - _INTEGER_BITS), 2.0**31 - 1))
    # PreprocessLogSoftmaxScalingExp: from Q5.26 back to levels, for the bound `least`.
    back, back_shift = quantize_multiplier(2.0**-shift / (multiplier / 2.0**31))
    radius = int(np.floor(((1 << _INTEGER_BITS) - 1) * 2.0 ** (31 - _INTEGER_BITS) / 2.0**shift))
    differences = np.arange(256, dtype=np.int64)
    wide = multiply_by_quantized_multiplier(-np.minimum(differences, radius), multiplier, shift)
    table = np.where(differences <= radius, rounding_shift_right(fixed_point_exp(wide), _SUM_BITS), 0)
    low, high = RANGES[TensorType.INT8]

    def run() -> None:
        below = x.max(axis=1, keepdims=True).astype(np.int64) - x
        logarithm = _log(table[below].sum(axis=1, keepdims=True))
        least = multiply_by_quantized_multiplier(logarithm + _INT32_MIN, back, back_shift)
        difference = wide[below] - logarithm
        levels = rounding_shift_right(difference, 31 - _INTEGER_BITS - _OUT_BITS) + high
        # Below `least` the difference of the logarithms would leave int32.
        known = -below > np.maximum(-radius - 1, least)
        np.copyto(y, np.where(known, np.clip(levels, low, high), low), casting="unsafe")

    return run


_LOG_2 = 1488522236
"""log(2) in Q0.31."""

_HALF_ROOT, _QUARTER_ROOT = 1518500250, 1805811301
"""The square root and the fourth root of 1/2 in Q0.31."""

_ALPHA_N, _ALPHA_D, _ALPHA_I, _ALPHA_F = 117049297, 127690142, 1057819769, 638450708
"""Coefficients of the Pade form in Q0.31 (`log_x_for_x_greater_than_or_equal_to_1_impl` of LiteRT's
`common.h`): with r the fourth root of 2, they are 11 r / 240, r / 20, 2 / r - r and r / 4."""


def _log(x: Array) -> Array:
    """Return log(x) in Q5.26 of x >= 1 in Q12.19 (`log_x_for_x_greater_than_or_equal_to_1`).

    x is brought near 1 by a power of the square root of two, in two ways of which the nearer is taken, and a
    Pade form gives the logarithm of the rest.
    """
    product = saturating_doubling_high_mul
    places = 31 - (_INTEGER_BITS + 1)
    quarter = 1 << (places - 2)
    leading = _leading_zeros(x)
    first = product(_saturated(x << (leading - 1)), _HALF_ROOT) << 1
    first_power = _saturated((_SUM_BITS - leading) << places) + quarter
    headroom = _leading_zeros(product(x, _HALF_ROOT)) - 1
    second = _saturated(x << headroom)
    second_power = _saturated((_SUM_BITS - headroom) << places) - quarter
    r = np.minimum(_saturated(first), second)
    power = np.maximum(first_power, second_power)
    p = _half_sum(r, _QUARTER_ROOT)
    q = 2 * (r - _QUARTER_ROOT)
    square = product(q, q)
    numerator = product(q, r) + product(product(q, square), _ALPHA_N)
    inner = _ALPHA_I + q + product(square, _ALPHA_D)
    denominator = product(p, inner) + product(q, _ALPHA_F)
    inverse = _one_over_one_plus(denominator)
    scaled = rounding_shift_right(numerator, _INTEGER_BITS + 1)
    return _saturated((product(power, _LOG_2) + product(scaled, inverse)) << 1)


def _one_over_one_plus(x: Array) -> Array:
    """Return 1 / (1 + x) of x in [0, 1), both in Q0.31."""
    found, _ = reciprocal((1 << 30) + (x >> 1), 31)
    return found


def _half_sum(a: Array, b: int) -> Array:
    """Return half of a + b, ties away from zero (gemmlowp's `RoundingHalfSum`)."""
    total = a + b
    return np.asarray(np.sign(total) * ((np.abs(total) + 1) // 2))


def _leading_zeros(x: Array) -> Array:
    # The exponent of an integer is its number of bits, and float64 holds all of 32 bits exactly.
    return np.asarray(32 - np.frexp(x.astype(np.float64))[1].astype(np.int64))


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, _INT32_MIN, _INT32_MAX))
