"""Sigmoid, tanh and layer normalisation on 16-bit levels, bit for bit as LiteRT computes them.

Sources: gemmlowp's `fixedpoint.h` and LiteRT's `portable_tensor_utils.cc`. A function of 16 bits has 65536
results: each is computed once, as a table. A value with n integer bits has 15 - n fractional ones.
"""

from functools import cache

import numpy as np

from runtime.ops.support import Array, quantization

INT16_MIN, INT16_MAX = -32768, 32767
"""The range of int16, at which every step saturates."""

_ONE_IN_Q2 = 1 << 13
"""1 with two integer bits, in which gemmlowp's division works: its results lie between 1 and 2."""

_OVERFLOW_GUARD = 1 << 20
"""Scale of a row's mean of squares (`kOverflowGuard` of `portable_tensor_utils.cc`): the square of a mean
that is scaled by 1024. Variances are divided by it again; another value would round differently."""


@cache
def sigmoid_table() -> Array:
    """Return the sigmoid, with no integer bits, of every level with 3; int16 [65536] by the level's bits.

    It is computed for -|x| and mirrored, as gemmlowp's `logistic` is.
    """
    x = _every_level()
    positive = _one_over_one_plus(_exp(-np.abs(x), 3))
    found = np.where(x > 0, positive, INT16_MAX - positive)
    return _table(np.where(x == 0, 1 << 14, found))


@cache
def tanh_table(integer_bits: int) -> Array:
    """Return tanh, with no integer bits, of every level with `integer_bits` in 0..6; int16 [65536].

    It is indexed by the level's bits.
    """
    x = _every_level()
    # With one integer bit more the same bits are 2 |x|: e = exp(-2 |x|).
    decayed = _exp(-np.abs(x), integer_bits + 1)
    # (1 - e) / (1 + e), as 2 / (1 + e) - 1.
    found = _raised(_reciprocal_of_half(decayed) - _ONE_IN_Q2, 2)
    return _table(np.where(x == 0, 0, np.where(x < 0, -found, found)))


def look_up(table: Array, levels: Array) -> Array:
    """Return the table's results for 16-bit levels held in any integer type; int64.

    Negative levels count from the table's end, which is where their bits as an unsigned number put them.
    """
    return table.take(levels).astype(np.int64)


def narrow(x: Array) -> Array:
    """Saturate x to 16 bits."""
    return np.asarray(np.minimum(np.maximum(x, INT16_MIN), INT16_MAX))


def narrow_to_byte(x: Array) -> Array:
    """Saturate x to 8 bits."""
    return np.asarray(np.minimum(np.maximum(x, -128), 127))


def _every_level() -> Array:
    return np.arange(1 << 16).astype(np.uint16).view(np.int16).astype(np.int64)


def _table(values: Array) -> Array:
    return values.astype(np.int16)


def _constant(q31: int) -> int:
    """Round a constant of 32 bits to 16, as `FixedPoint<int16_t>` does."""
    return int(quantization.rounding_shift_right(np.asarray(q31), 16))


def times(a: Array, b: Array | int) -> Array:
    """Multiply as gemmlowp's SaturatingRoundingDoublingHighMul of 16 bits; int64."""
    product = np.asarray(a * b + (1 << 14), np.int64)
    return np.asarray(np.minimum(product >> 15, INT16_MAX))


def _raised(x: Array, exponent: int) -> Array:
    return narrow(x << exponent)


def _exp(x: Array, integer_bits: int) -> Array:
    """Return exp of x <= 0 with `integer_bits`; the result has none (`exp_on_negative_values`)."""
    fraction_bits = 15 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    # x is a part in [-1/4, 0) and a whole number of quarters, whose bits choose the factors.
    within = (x & (quarter - 1)) - quarter
    result = _exp_of_last_quarter(_raised(within, integer_bits))
    whole = within - x
    for exponent, factor in enumerate(quantization.EXP_OF_POWERS, -2):
        if integer_bits > exponent:
            has_it = whole & (1 << (fraction_bits + exponent))
            result = np.where(has_it, times(result, _constant(factor)), result)
    # Beyond -32 no factor is left: the reference cuts off there, as exp(-32) is 0 in 16 bits.
    if integer_bits > 5:
        result = np.where(x < -(1 << (20 - integer_bits)), 0, result)
    return np.where(x == 0, INT16_MAX, result)


def _exp_of_last_quarter(x: Array) -> Array:
    """Return exp of x in [-1/4, 0), both without integer bits: a Taylor polynomial of degree 4 about -1/8."""
    centre = _constant(quantization.EXP_OF_EIGHTH)
    t = x + (1 << 12)
    t2 = times(t, t)
    t3, t4 = times(t2, t), times(t2, t2)
    rest = times(quantization.rounding_shift_right(t4, 2) + t3, _constant(quantization.ONE_THIRD)) + t2
    rest = quantization.rounding_shift_right(rest, 1)
    return narrow(centre + times(t + rest, centre))


def _reciprocal_of_half(x: Array) -> Array:
    """Return 2 / (1 + x) of x in [0, 1], with two integer bits, by three steps of Newton's method."""
    half = (x + INT16_MAX + 1) >> 1
    found = _constant(quantization.DIVISION_START) + times(half, _constant(-quantization.DIVISION_SLOPE))
    for _ in range(3):
        left = _ONE_IN_Q2 - times(half, found)
        found = found + _raised(times(found, left), 2)
    return found


def _one_over_one_plus(x: Array) -> Array:
    return _raised(_reciprocal_of_half(x), 1)


def layer_norm(x: Array, weights: Array, bias: Array, scale: tuple[int, int], least_variance: int) -> Array:
    """Normalise, weight and bias the rows of x, int64 [batch, n]; int16 levels held in int64.

    `PortableApplyLayerNorm` of `portable_tensor_utils.cc`. A variance below 1 becomes `least_variance`.
    """
    size = x.shape[1]
    sums, squares = x.sum(axis=1), (x * x).sum(axis=1)
    # Means have 10 fractional bits, and their squares the 20 of `_OVERFLOW_GUARD`.
    means = _truncated(sums * 1024, size)
    variances = _truncated(squares * (_OVERFLOW_GUARD // size) - means * means, _OVERFLOW_GUARD)
    rows = []
    for row, mean, variance in zip(x, means, variances, strict=True):
        inverse = quantization.inverse_square_root(int(variance) if variance >= 1 else least_variance)
        normal = quantization.multiply_by_quantized_multiplier(1024 * row - mean, *inverse)
        weighted = normal * weights + bias
        # The reference rounds with C's division: 512 towards the sign, then truncated.
        rounded = _truncated(np.where(weighted > 0, weighted + 512, weighted - 512), 1024)
        levels = quantization.multiply_by_quantized_multiplier(rounded, scale[0], scale[1] + 12)
        rows.append(narrow(levels))
    return np.stack(rows)


def _truncated(a: Array, b: int) -> Array:
    return np.asarray(np.sign(a) * (np.abs(a) // b))
