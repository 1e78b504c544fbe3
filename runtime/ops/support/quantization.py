"""Fixed-point arithmetic of the integer kernels, bit for bit that of LiteRT's reference kernels.

Sources: `kernels/internal/quantization_util.cc` (QuantizeMultiplier), `kernels/internal/common.cc`
(MultiplyByQuantizedMultiplier in the default double-rounding build) and gemmlowp's `fixedpoint.h`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.model.schema import ActivationFunctionType, TensorType

_Array = NDArray[Any]

RANGES = {
    TensorType.INT8: (-128, 127),
    TensorType.UINT8: (0, 255),
    TensorType.INT16: (-32768, 32767),
    TensorType.INT32: (-(2**31), 2**31 - 1),
}

"""The least and greatest quantised value of each type."""

_HALF_SQRT_2 = 1518500250
"""sqrt(2) / 2 in Q0.31, the last factor of LiteRT's inverse square root (`quantization_util.cc`)."""

EXACT_FLOAT32_TERMS = 1024
"""Products of int8 by int8 that a float32 sum holds exactly: 1024 * 128 * 128 = 2^24, up to which every
integer is a float32. Longer sums need float64."""


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) with real = multiplier * 2^(shift - 31), multiplier in [2^30, 2^31).

    `QuantizeMultiplier` of `quantization_util.cc`; a real below 2^-32 becomes (0, 0).
    """
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    fixed = int(round_half_away(np.float64(fraction * (1 << 31))))
    # A fraction just below 1 has rounded up to what int32 does not hold.
    if fixed == 1 << 31:
        fixed //= 2
        shift += 1
    return (0, 0) if shift < -31 else (fixed, shift)


def quantize_multipliers(reals: Sequence[float]) -> tuple[_Array, _Array]:
    """Apply `quantize_multiplier` to each real; return multipliers and shifts, both int64 [reals]."""
    pairs = [quantize_multiplier(float(r)) for r in reals]
    return np.array([m for m, _ in pairs], np.int64), np.array([s for _, s in pairs], np.int64)


def round_half_away(x: _Array | np.float64) -> _Array:
    """Round as C's `round`: to the nearest integer, ties away from zero; same shape and dtype."""
    # Not floor(x + 0.5): that sum rounds, and takes the largest number below 0.5 to 1. Both steps here are
    # exact.
    whole = np.trunc(x)
    return np.asarray(whole + np.trunc((x - whole) * 2))


def round_all(x: _Array) -> _Array:
    """Apply `round_half_away`, and leave infinities and NaN as they are."""
    return np.where(np.isfinite(x), round_half_away(x), x)


def saturating_doubling_high_mul(a: _Array, b: _Array | int) -> _Array:
    """Multiply as gemmlowp's SaturatingRoundingDoublingHighMul: int32 values held in int64; int64."""
    product = a * np.int64(b) if isinstance(b, int) else a * b
    # The reference's nudge for negative products and its truncating division amount to ties upwards, a shift.
    return np.asarray(np.minimum((product + (1 << 30)) >> 31, 2**31 - 1))


def rounding_shift_right(x: _Array, exponent: _Array | int) -> _Array:
    """Divide as gemmlowp's RoundingDivideByPOT: x / 2^exponent, ties away from zero; int64."""
    if isinstance(exponent, int):
        one_half = 1 << exponent >> 1
        return np.asarray((x + (one_half - (x < 0))) >> exponent if one_half else x)
    half = (np.int64(1) << exponent) >> 1
    return np.asarray((x + half - ((x < 0) & (half > 0))) >> exponent)


EXP_OF_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""exp(-2^k) in Q0.31 for k = -2..4 (`exp_on_negative_values` of gemmlowp's `fixedpoint.h`): one factor for
each binary digit of the exponent."""

EXP_OF_EIGHTH = 1895147668
"""exp(-1/8) in Q0.31, about which gemmlowp expands the last quarter."""

ONE_THIRD = 715827883
"""1 / 3 in Q0.31, of the Taylor polynomial of that expansion."""

DIVISION_START = 1515870810
"""48 / 17 in Q2.29: with `DIVISION_SLOPE` the line from which gemmlowp's Newton division starts, the one of
least relative error over [1/2, 1]."""

DIVISION_SLOPE = 1010580540
"""32 / 17 in Q2.29."""


def fixed_point_exp(x: _Array) -> _Array:
    """Return exp(x) in Q0.31 of x <= 0 in Q5.26 (gemmlowp's `exp_on_negative_values`); int64."""
    quarter = 1 << 24
    # x = fraction - whole: the fraction in [-1/4, 0), `whole` a multiple of 1/4, one factor for each of its
    # bits.
    fraction = (x & (quarter - 1)) - quarter
    # Five bits of Q5.26 are integer bits: below 1/4 in size they are spare, and the shift makes it Q0.31.
    result = _exp_of_last_quarter(fraction << 5)
    whole = fraction - x
    for k, factor in enumerate(EXP_OF_POWERS):
        result = np.where(whole & (quarter << k), saturating_doubling_high_mul(result, factor), result)
    # exp(0) = 1 is beyond Q0.31: the largest number stands for it.
    return np.where(x == 0, 2**31 - 1, result)


def _exp_of_last_quarter(x: _Array) -> _Array:
    """Return exp(x) of x in [-1/4, 0), both Q0.31: a Taylor polynomial of degree 4 about -1/8."""
    high_mul = saturating_doubling_high_mul
    centre = EXP_OF_EIGHTH
    t = x + (1 << 28)
    t2 = high_mul(t, t)
    cubic = rounding_shift_right(high_mul(t2, t2), 2) + high_mul(t2, t)
    rest = rounding_shift_right(high_mul(cubic, ONE_THIRD) + t2, 1)
    return centre + high_mul(t + rest, centre)


class QuantizedMultiplier:
    """Computes x * multiplier * 2^(shift - 31) with gemmlowp's two roundings, prepared for many calls.

    `MultiplyByQuantizedMultiplier` of `common.cc` in the default build of two roundings. A shift to the left
    that leaves 32 bits wraps, as in the reference. Multipliers and shifts broadcast with x.
    """

    def __init__(self, multiplier: _Array | int, shift: _Array | int) -> None:
        shifts = np.asarray(shift, np.int64)
        left = np.maximum(shifts, 0)
        self._left = left if left.any() else None
        self._multiplier = np.asarray(multiplier, np.int64)
        right = np.maximum(-shifts, 0)
        self._right = right if right.any() else None
        self._half = (np.int64(1) << right) >> 1
        self._negative = -(self._half > 0).astype(np.int64)

    def __call__(self, x: _Array) -> _Array:
        """Multiply `x`, int32 values in any integer dtype; int64 of the broadcast shape."""
        wide = np.asarray(x, np.int64)
        if self._left is not None:
            wide = (wide << self._left).astype(np.int32).astype(np.int64)
        high = saturating_doubling_high_mul(wide, self._multiplier)
        if self._right is None:
            return high
        # `rounding_shift_right` with everything that depends on the shift prepared.
        return np.asarray((high + (self._half + ((high >> 63) & self._negative))) >> self._right)


def multiply_by_quantized_multiplier(x: _Array, multiplier: _Array | int, shift: _Array | int) -> _Array:
    """Prepare a `QuantizedMultiplier` and call it once."""
    return QuantizedMultiplier(multiplier, shift)(x)


def inverse_square_root(value: int) -> tuple[int, int]:
    """Return (multiplier, left shift) of 1 / sqrt(value), value > 0 (`GetInvSqrtQuantizedMultiplierExp`)."""
    if value <= 1:
        return 2**31 - 1, 0
    shift = 11
    while value >= 1 << 29:
        value //= 4
        shift += 1
    # Bits move in pairs, as the root of 4 is 2: each pair is one bit of the result's exponent.
    pairs = (32 - value.bit_length() - 1) // 2 - 1
    shift -= pairs
    half = ((value << (2 * pairs) >> 1) + 1) >> 1
    # Five steps of Newton's method in Q3.28, from 1: as many, and in the same roundings, as the reference.
    x = 1 << 28
    for _ in range(5):
        # x <- 1.5 x - (value / 2) x^3. A cube of Q3.28 is Q9.22 and a product Q6.25: six and three bits back.
        cube = _shifted32(_high_mul(_high_mul(x, x), x), 6)
        grown = _high_mul(x, (1 << 28) + (1 << 27))
        x = _shifted32(grown - _high_mul(half, cube), 3)
    found = _high_mul(x, _HALF_SQRT_2)
    return (found << -shift, 0) if shift < 0 else (found, -shift)


def _high_mul(a: int, b: int) -> int:
    """Apply `saturating_doubling_high_mul` to Python integers, which numpy scalars would slow down."""
    return min((a * b + (1 << 30)) >> 31, 2**31 - 1)


def _shifted32(x: int, exponent: int) -> int:
    return max(min(x << exponent, 2**31 - 1), -(2**31))


def quantize(x: _Array, scale: float, zero_point: int, tensor_type: TensorType) -> _Array:
    """Return zero_point + round(x / scale) clamped to the type (`reference/quantize.h`); int64."""
    low, high = RANGES[tensor_type]
    rounded = round_half_away(np.asarray(x, np.float32) / np.float32(scale))
    return np.clip(np.nan_to_num(rounded).astype(np.float64) + zero_point, low, high).astype(np.int64)


_BOUNDS: Mapping[ActivationFunctionType, tuple[float | None, float | None]] = {
    ActivationFunctionType.NONE: (None, None),
    ActivationFunctionType.RELU: (0.0, None),
    ActivationFunctionType.RELU6: (0.0, 6.0),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""The real bounds of the fused activations that are clamps."""


def activation_range(
    activation: ActivationFunctionType, scale: float, zero_point: int, tensor_type: TensorType
) -> tuple[int, int]:
    """Return the clamp of a quantised output under a fused activation (`CalculateActivationRangeQuantized`).

    Raises KeyError for TANH and SIGN_BIT.
    """
    low, high = RANGES[tensor_type]
    below, above = _BOUNDS[activation]

    def level(real: float) -> int:
        return zero_point + int(round_half_away(np.float64(np.float32(real) / np.float32(scale))))

    return (
        low if below is None else max(low, level(below)),
        high if above is None else min(high, level(above)),
    )


def float_activation_range(activation: ActivationFunctionType) -> tuple[float, float] | None:
    """Return the clamp of a float output, None without an activation. Raises KeyError for TANH and SIGN_BIT.

    `runtime/ops/support/fused_activation.py` says what LiteRT does without an activation.
    """
    below, above = _BOUNDS[activation]
    return None if below is None else (below, float(np.finfo(np.float32).max) if above is None else above)


class Requantizer:
    """Turns sums into narrow outputs: add the offset, multiply, add the zero point, clamp. Prepared once.

    Computes MultiplyByQuantizedMultiplier exactly in float64: where sums with their offset stay within 2^21
    (`limit` says so), a product with the 31-bit multiplier is an integer below 2^53; else the multiplier is
    split in halves. Multipliers, shifts and offset broadcast over channels, the last axis; `repeats`
    neighbouring pixels, which divide the pixels of every call, share one inner loop. `work` is float64 memory
    for twice as many elements as one call gets.
    """

    def __init__(
        self,
        multipliers: _Array,
        shifts: _Array,
        zero_point: int,
        clamp: tuple[int, int],
        work: _Array,
        offset: _Array | float = 0.0,
        *,
        limit: float = 1 << 31,
        repeats: int = 1,
    ) -> None:
        left = np.exp2(np.maximum(shifts, 0)).astype(np.float64)
        right = np.maximum(-shifts, 0)
        # The excess of 2^-42 turns a negative tie away from zero and survives adding an 8-bit zero point;
        # it is too small to move any other value that an 8-bit clamp leaves alone.
        scale = np.exp2(-right.astype(np.float64)) * (1 + np.exp2(-42.0))
        # A multiplier is high * 2^16 + low; `whole` is the factor that it stands for.
        whole, low, high = multipliers * left / 2.0**31, multipliers & 0xFFFF, multipliers >> 16
        # 0.5 before the floor of `_multiply` is the reference's nudge of 2^30: nearest, ties upwards.
        parts = (whole, offset * whole + 0.5, np.asarray(offset), low * left / 65536.0, high * left, scale)
        rows = [_repeated(part, repeats) for part in parts]
        self._whole, self._start, self._offset, self._low, self._high, self._scale = rows
        self._row = max(row.size for row in rows)
        self._one_product = limit <= _ONE_PRODUCT_LIMIT
        self._bias = 0.5 + zero_point
        # As floats: numpy would convert two Python integers for every piece.
        self._clamp = (float(clamp[0]), float(clamp[1]))
        self._work = work

    def __call__(self, sums: _Array, out: _Array) -> None:
        """Write `out` from `sums` of the same shape: floating-point integers, with the offset below 2^31.

        Raises ValueError for an `out` that is not contiguous.
        """
        if not out.flags.c_contiguous:
            raise ValueError("levels are written to contiguous memory")
        shape = (-1, self._row)
        acc = self._work[: sums.size].reshape(shape)
        self._multiply(sums.reshape(shape), acc)
        np.multiply(acc, self._scale, out=acc)
        narrow = out.reshape(shape)
        if narrow.dtype.itemsize == 1:
            self._to_bytes(acc, narrow)
            return
        np.add(acc, self._bias, out=acc)
        np.floor(acc, out=acc)
        np.clip(acc, *self._clamp, out=acc)
        np.copyto(narrow, acc, casting="unsafe")

    def _multiply(self, sums: _Array, acc: _Array) -> None:
        """Apply the shift to the left, then the saturating rounding doubling high multiplication."""
        if self._one_product:
            np.multiply(sums, self._whole, out=acc)
            np.add(acc, self._start, out=acc)
        else:
            # The multiplier is high * 2^16 + low: either half gives a product below 2^53. The low product is
            # rounded down to a multiple of 2^16 first, which cannot change the floor at the end.
            t = self._work[-sums.size :].reshape(acc.shape)
            np.add(sums, self._offset, out=acc)
            np.multiply(acc, self._low, out=t)
            # In units of 2^16 the nudge of 2^30 is 2^14, and the division by 2^31 below one by 2^15.
            np.add(t, 16384.0, out=t)
            np.floor(t, out=t)
            np.multiply(acc, self._high, out=acc)
            np.add(acc, t, out=acc)
            np.multiply(acc, 1 / 32768.0, out=acc)
        np.floor(acc, out=acc)

    def _to_bytes(self, acc: _Array, out: _Array) -> None:
        """Write levels counted from 0, as casting numbers that are not negative rounds down like `floor`."""
        below = 128 if out.dtype == np.int8 else 0
        np.add(acc, self._bias + below, out=acc)
        np.clip(acc, self._clamp[0] + below, self._clamp[1] + below, out=acc)
        levels = out.view(np.uint8)
        np.copyto(levels, acc, casting="unsafe")
        if below:
            # In two's complement the flipped top bit subtracts the 128.
            np.bitwise_xor(levels, 128, out=levels)


_ONE_PRODUCT_LIMIT = 1 << 21
"""Largest sum whose product with a multiplier of at most 2^31 is below 2^53, and so exact in float64."""


def _repeated(values: _Array, repeats: int) -> _Array:
    """Return one value where all are equal, which then broadcasts; else all of them, `repeats` times over."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return flat[:1] if flat.size and (flat == flat[0]).all() else np.tile(flat, repeats)


class WideRequantizer:
    """Turns 64-bit sums into int16 outputs of zero point 0 (`MultiplyByQuantizedMultiplier` for int64).

    The multiplier is cut to 15 bits, so that its product with a sum of 47 bits fits int64. The multipliers
    broadcast over the last axis.
    """

    def __init__(self, multipliers: _Array, shifts: _Array, clamp: tuple[int, int]) -> None:
        # From 0x7FFF0000 on, rounding to 16 bits would give 2^15, which int16 does not hold.
        self._multipliers = np.where(multipliers < 0x7FFF0000, (multipliers + (1 << 15)) >> 16, 0x7FFF)
        self._shifts = 15 - shifts
        self._half = np.int64(1) << (self._shifts - 1)
        self._clamp = clamp

    def __call__(self, acc: _Array, out: _Array) -> None:
        """Write `out`, int16 of the shape of `acc`: float64 integers of magnitude below 2^47.

        What leaves 32 bits wraps around before it is clamped, as in the reference.
        """
        wide = (acc.astype(np.int64) * self._multipliers + self._half) >> self._shifts
        np.copyto(out, np.clip(wide.astype(np.int32), *self._clamp), casting="unsafe")
