"""A float function of levels, as LiteRT tabulates it (`LUTPopulate` of `internal/common.h`).

LOGISTIC and TANH of int16 (`reference/integer_ops/logistic.h`, `tanh.h`) have a table of their own: it holds
sigmoid over [0, 10.7), about 24 points to a unit, in 16 bits; tanh(x) = 2 sigmoid(2 x) - 1.
"""

import math
from collections.abc import Callable

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType
from runtime.ops.support.blocks import flat_blocks, over
from runtime.ops.support.levels import every_level, level_table
from runtime.ops.support.lookup import interpolated, lookup_table
from runtime.ops.support.quantization import RANGES, round_all


def through_function(op: OpContext, function: Callable[[Array], Array]) -> Kernel:
    """Return a kernel that looks `function`, float32 to float32, up in a table.

    The table holds every 8-bit level, or 513 points of the int16 range, between which it is interpolated.
    """
    if op.input().type is TensorType.INT16:
        return _through_points(op, function)
    return level_table(op, lambda q: _of_levels(op, q, function))


def _of_levels(op: OpContext, q: Array, function: Callable[[Array], Array]) -> Array:
    in_scale, in_zero, scale, zero = op.scales()
    inverse = np.float32(1) / np.float32(scale)
    with np.errstate(all="ignore"):
        real = function(np.float32(in_scale) * (q - in_zero).astype(np.float32))
        levels = round_all(real * inverse) + np.float32(zero)
    # A NaN becomes the least level, as in LiteRT.
    return np.clip(np.nan_to_num(levels, nan=-np.inf), *RANGES[op.output().type]).astype(np.int64)


def _through_points(op: OpContext, function: Callable[[Array], Array]) -> Kernel:
    in_scale, in_zero, scale, zero = op.scales()
    low, high = (np.float32(in_scale) * np.float32(v - in_zero) for v in (-32768, 32767))
    points = lookup_table(float(low), float(high), function, (scale, zero))
    # The interpolation too depends on the level alone: 65536 results replace it in every run.
    table = interpolated(every_level(TensorType.INT16), points).astype(np.int16)
    pieces = flat_blocks(op.write(), op.read(0).view(np.uint16))
    return over(pieces, lambda y, index: np.take(table, index, out=y, mode="clip"))


_STEP = (1 + 3.97e-5) / 24
"""Real distance between two points, fitted so that the computed table is LiteRT's `sigmoid_table_uint16` but
for `_OTHERWISE`."""

_OTHERWISE = {4: 1, 35: 1, 69: -1, 71: -1, 117: -1, 174: -1}
"""Index of each point that LiteRT's table has on the other side of a half, and what is added to it."""

_NEAR_A_POWER = 1e-3
"""Distance of log2(scale) from an integer within which a scale counts as a power of two (`CheckedLog2` of
`quantization_util.cc`)."""


def sigmoid_int16(op: OpContext) -> Kernel:
    """Return the kernel of LOGISTIC or TANH of int16, any shape.

    Raises `UnsupportedOperatorError` for a zero point other than 0, or an output scale other than 1/32768.
    """
    scale, zero = op.scale_and_zero_point(op.input())
    if zero or op.scale_and_zero_point(op.output()) != (1 / 32768, 0):
        raise op.unsupported("int16 with a zero point, or an output scale other than 1/32768")
    is_tanh = op.operator.opcode is Op.TANH
    multiplier, shift = _multiplier(scale, (0, 1) if is_tanh else (0,))
    rule = _tanh if is_tanh else _logistic

    def of_levels(q: Array) -> Array:
        wide = (q * multiplier + ((1 << shift) >> 1)) >> shift
        return rule(np.where(wide < 0, -1, 1), np.abs(wide))

    return level_table(op, of_levels)


def _multiplier(scale: float, plain: tuple[int, ...]) -> tuple[int, int]:
    """Return (multiplier, right shift) to a scale of 1/12288, exact for 2^-12 times one of 2^`plain`."""
    exponent = math.log2(scale)
    power = round(exponent)
    if abs(exponent - power) < _NEAR_A_POWER and 12 + power in plain:
        return 3 << (12 + power), 0
    real, shift = float(np.float32(scale)) * 4096 * 3, 0
    # As many bits as int16 holds, in which the reference keeps the multiplier.
    while real <= 32767 / 2 and shift <= 30:
        real, shift = real * 2, shift + 1
    return int(real), shift


def _table() -> Array:
    points = np.asarray(np.floor(65536 / (1 + np.exp(-_STEP * np.arange(256))) + 0.5), np.int64)
    for index, correction in _OTHERWISE.items():
        points[index] += correction
    points[255] = 65535
    return points


def _interpolated(size: Array, bits: int) -> Array:
    """Interpolate the table at `size`, int64, with `bits` between two points; the result has `bits` more."""
    table, index = _table(), size >> bits
    # Beyond the table the result is not used: the callers put the saturated value there.
    base, after = table[np.minimum(index, 254)], table[np.minimum(index, 254) + 1]
    return np.asarray((base << bits) + (size & ((1 << bits) - 1)) * (after - base))


def _logistic(sign: Array, size: Array) -> Array:
    # Below zero it is 1 - sigmoid(|x|); the reference subtracts 1 more, by which both sides stay symmetric.
    # A step of the table, 1/24, is 2^9 units of 1/12288. The result has 25 fractional bits, 15 in the end.
    result = np.where(size >> 9 >= 255, 0x7FFF << 10, _interpolated(size, 9))
    return np.where(sign > 0, result + (1 << 9), (1 << 25) - result + (1 << 9) - 1) >> 10


def _tanh(sign: Array, size: Array) -> Array:
    # The table is read at 2 x, so that half as many units make a step.
    result = np.where(size >> 8 >= 255, 0xFFFF << 8, _interpolated(size, 8))
    half = 1 << 23
    return np.where(sign > 0, result - half + (1 << 7), half - result + (1 << 7) - 1) >> 8
