"""Quantised element-wise operators as tables: the rule is evaluated for every level, or pair of levels.

A *level* is a quantised value, the integer q of real = scale * (q - zero_point). A rule maps int64 levels to
int64 levels exactly as LiteRT's reference kernel does; the levels of a type, and the pairs of 8-bit levels,
are few, so the rule runs once while planning and `invoke` only looks up.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.blocks import broadcast_blocks, flat_blocks, over, pairwise
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.quantization import (
    DIVISION_SLOPE,
    DIVISION_START,
    RANGES,
    activation_range,
    inverse_square_root,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_shift_right,
    saturating_doubling_high_mul,
)
from runtime.ops.support.value import Array

PairRule: TypeAlias = Callable[[OpContext, Array, Array], Array]
"""(operator, levels of input 0, levels of input 1, which broadcast) to output levels less the zero point."""

_LEFT_SHIFT = 20
"""Spare bits below the point of ADD and SUB of 8-bit levels (`left_shift` of `add.cc`, `sub.cc`): a
difference of 9 bits then has 29, which leaves room in int32 for a sum. Another value would round
differently."""

_INT16_MAX = 32767
"""The largest int16, at which LiteRT's 16-bit fixed-point products saturate."""


def every_level(kind: TensorType) -> Array:
    """Return every level of a type, int64, at the index that its bits have as an unsigned integer."""
    dtype = np.dtype(kind.name.lower())
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return np.arange(1 << (8 * dtype.itemsize)).astype(unsigned).view(dtype).astype(np.int64)


def level_table(op: OpContext, rule: Callable[[Array], Array]) -> Kernel:
    """Return a kernel that applies `rule` to each element of input 0 through a table of all levels."""
    kind, target = op.input().type, op.output().type
    dtype = np.dtype(target.name.lower())
    table = np.clip(rule(every_level(kind)), *RANGES[target]).astype(dtype)
    x = op.read(0)
    if table.size == 256 and dtype.itemsize == 1:
        return _translated(op, table.tobytes())
    pieces = flat_blocks(op.write(), x.view(f"u{x.itemsize}"))
    # "clip" instead of the default "raise", for which `take` buffers `out`; no index is beyond the table.
    return over(pieces, lambda y, index: np.take(table, index, out=y, mode="clip"))


def _translated(op: OpContext, table: bytes) -> Kernel:
    """Look bytes up with `bytes.translate`, which needs no widened index as `np.take` does."""
    pieces = flat_blocks(op.write().view(np.uint8), op.read(0).view(np.uint8))

    def run() -> None:
        for y, x in pieces:
            y[:] = np.frombuffer(x.tobytes().translate(table), np.uint8)

    return run


def pair_levels(op: OpContext, rule: PairRule) -> Kernel:
    """Return a kernel that applies `rule` to inputs 0 and 1, broadcast, and the fused activation's clamp.

    The 65536 pairs of 8-bit levels are tabulated; pairs of 16-bit levels are computed in every run.
    """
    kind = op.output().type
    scale, zero = op.scale_and_zero_point(op.output())
    activation = op.operator.options.get("fused_activation_function", ActivationFunctionType.NONE)
    clamp = activation_range(activation, scale, zero, kind)
    if kind is TensorType.INT16:
        return _pairs_as_they_come(op, rule, zero, clamp)
    every = every_level(kind)
    raw = rule(op, every[:, None], every[None, :]) + zero
    # Row-major: the result for two levels is at left * 256 + right, both taken as unsigned bytes.
    flat = np.clip(raw, *clamp).astype(kind.name.lower()).reshape(-1)
    pieces = broadcast_blocks(op.write(), op.read(0).view(np.uint8), op.read(1).view(np.uint8))
    index = op.temporary((max((p[0].size for p in pieces), default=0),), np.intp)
    steps = [(*p, index[: p[0].size].reshape(p[0].shape)) for p in pieces]

    # The index is computed in `intp`, the one type that `take` uses without converting it once more.
    def run() -> None:
        for out, left, right, where in steps:
            np.multiply(left, np.intp(256), out=where)
            np.add(where, right, out=where)
            np.take(flat, where, out=out, mode="clip")

    return run


def _pairs_as_they_come(op: OpContext, rule: PairRule, zero: int, clamp: tuple[int, int]) -> Kernel:
    def apply(left: Array, right: Array, out: Array) -> None:
        raw = rule(op, left.astype(np.int64), right.astype(np.int64)) + zero
        np.clip(raw, *clamp, out=out, casting="unsafe")

    return pairwise(op, apply)


def scaled(x: Array, real: float) -> Array:
    """Return int64 x * real with the two roundings of `MultiplyByQuantizedMultiplier`."""
    return multiply_by_quantized_multiplier(x, *quantize_multiplier(float(real)))


def total(op: OpContext, x: Array, z: Array) -> Array:
    """ADD and SUB (`reference/integer_ops/add.h`, `reference/sub.h`).

    Both operands are brought to one scale with 20 spare bits, or 15 for int16, then to the output's scale.
    """
    powers = _power_of_two_shifts(op)
    subtracts = op.operator.opcode is Op.SUB
    if powers is not None:
        left, right = (rounding_shift_right(v, shift) for v, shift in zip((x, z), powers, strict=True))
        return _saturate16(left - right if subtracts else left + right)
    spare = 15 if op.output().type is TensorType.INT16 else _LEFT_SHIFT
    wide_x, wide_z, twice = _on_one_scale(op, x, z, spare)
    out_scale, _ = op.scale_and_zero_point(op.output())
    result = wide_x - wide_z if subtracts else wide_x + wide_z
    return scaled(result, twice / ((1 << spare) * out_scale))


def _on_one_scale(op: OpContext, x: Array, z: Array, spare: int) -> tuple[Array, Array, float]:
    """Return both operands with `spare` bits below the point, and their scale: twice the larger one."""
    (scale_x, zero_x), (scale_z, zero_z) = (op.scale_and_zero_point(op.input(i)) for i in (0, 1))
    twice = 2 * max(scale_x, scale_z)
    return (
        scaled((x - zero_x) << spare, scale_x / twice),
        scaled((z - zero_z) << spare, scale_z / twice),
        twice,
    )


def _power_of_two_shifts(op: OpContext) -> tuple[int, int] | None:
    """Return how far int16 operands are shifted right, None where they are rescaled instead.

    LiteRT shifts where the option `pot_scale_int16` allows and all scales are powers of two. Raises
    `UnsupportedOperatorError` unless one input already has the output's scale.
    """
    if op.output().type is not TensorType.INT16 or not op.operator.options.get("pot_scale_int16", True):
        return None
    logs = [math.log2(op.scale_and_zero_point(v)[0]) for v in (op.input(0), op.input(1), op.output())]
    if not all(log == round(log) for log in logs):
        return None
    shifts = (int(logs[2] - logs[0]), int(logs[2] - logs[1]))
    # `add.cc` and `sub.cc` demand it: one operand as it is, and none shifted to the left.
    if min(shifts) < 0 or 0 not in shifts:
        raise op.unsupported(
            "int16 scales that are powers of two, of which none of the inputs' is the output's"
        )
    return shifts


def product(op: OpContext, x: Array, z: Array) -> Array:
    """MUL (`reference/integer_ops/mul.h`); the scales are multiplied in single precision, as in `mul.cc`."""
    scale_x, zero_x = op.scale_and_zero_point(op.input(0))
    scale_z, zero_z = op.scale_and_zero_point(op.input(1))
    out_scale, _ = op.scale_and_zero_point(op.output())
    real = np.float32(scale_x) * np.float32(scale_z) / np.float32(out_scale)
    return scaled((x - zero_x) * (z - zero_z), float(real))


def squared_difference(op: OpContext, x: Array, z: Array) -> Array:
    """SQUARED_DIFFERENCE (`squared_difference.cc`): the difference on one scale with 7 spare bits, squared.

    With one bit more the square would no longer fit int32.
    """
    wide_x, wide_z, twice = _on_one_scale(op, x, z, 7)
    out_scale, _ = op.scale_and_zero_point(op.output())
    return scaled((wide_x - wide_z) ** 2, twice * twice / ((1 << 14) * out_scale))


def prelu(op: OpContext, x: Array, alpha: Array) -> Array:
    """PRELU (`reference/prelu.h`): one multiplier where x is not negative, another for x * alpha."""
    in_scale, in_zero = op.scale_and_zero_point(op.input(0))
    alpha_scale, alpha_zero = op.scale_and_zero_point(op.input(1))
    out_scale = np.float32(op.scale_and_zero_point(op.output())[0])
    centred = x - in_zero
    positive = scaled(centred, float(np.float32(in_scale) / out_scale))
    slope = float(np.float32(in_scale) * np.float32(alpha_scale) / out_scale)
    return np.where(centred >= 0, positive, scaled(centred * (alpha - alpha_zero), slope))


def quotient(op: OpContext, x: Array, z: Array) -> Array:
    """DIV (`reference/div.h`): by the divisor's reciprocal, with all the bits that the dividend leaves.

    For a divisor of zero the result means nothing: the kernel raises before it looks one up.
    """
    scale_x, zero_x = op.scale_and_zero_point(op.input(0))
    scale_z, zero_z = op.scale_and_zero_point(op.input(1))
    out_scale, _ = op.scale_and_zero_point(op.output())
    real = np.float32(scale_x) / (np.float32(scale_z) * np.float32(out_scale))
    multiplier, shift = quantize_multiplier(float(real))
    dividend, divisor = np.broadcast_arrays(x - zero_x, z - zero_z)
    # The reciprocal is of positive numbers: the reference turns both signs.
    dividend = np.where(divisor < 0, -dividend, dividend)
    inverse, bits = reciprocal(np.maximum(np.abs(divisor), 1), 31)
    # CountLeadingSignBits: the sign bits of a negative number are the leading zeros of its complement.
    headroom = 31 - np.frexp(np.where(dividend < 0, ~dividend, dividend).astype(np.float64))[1]
    wide = saturating_doubling_high_mul(dividend << headroom.astype(np.int64), inverse)
    right = -(shift - bits - headroom)
    high = saturating_doubling_high_mul(wide, multiplier)
    # A shift by less than 0 or more than 31 bits is undefined in the reference's C++; x86 shifts by the
    # lowest five bits of the count, and so does this.
    beyond = (high >> (right & 31)) + (high > np.where(high < 0, 0, -1))
    return np.where((right < 0) | (right > 31), beyond, rounding_shift_right(high, np.clip(right, 0, 31)))


def reciprocal(x: Array, integer_bits: int) -> tuple[Array, Array]:
    """Return (1 / m in Q0.31, e) of positive int32 values m * 2^e with `integer_bits` and m in [1, 2).

    `GetReciprocal` of LiteRT's `common.h`: three steps of Newton's method, as gemmlowp's
    `one_over_one_plus_x_for_x_in_0_1` makes them. More steps would be more exact, and differ from LiteRT.
    """
    headroom = 32 - np.frexp(x.astype(np.float64))[1].astype(np.int64)
    # gemmlowp's RoundingHalfSum of the fraction in Q0.31 and of one, which is 2^31 - 1 there.
    half = ((x << headroom) - (1 << 31) + (2**31 - 1) + 1) // 2
    y = DIVISION_START - saturating_doubling_high_mul(half, DIVISION_SLOPE)
    for _ in range(3):
        # All in Q2.29, where one is 2^29. The next product is Q4.27: two bits to the left make it Q2.29
        # again.
        error = (1 << 29) - saturating_doubling_high_mul(half, y)
        y = y + (saturating_doubling_high_mul(y, error) << 2)
    return np.minimum(y << 1, 2**31 - 1), integer_bits - headroom


def absolute(op: OpContext, q: Array) -> Array:
    """ABS (`elementwise.cc`): levels are rescaled where the scales differ."""
    in_scale, in_zero, scale, zero = op.scales()
    size = np.abs(q - in_zero)
    if in_scale != scale:
        size = scaled(size, float(np.float32(in_scale) / np.float32(scale)))
    return np.asarray(size + zero)


def root(op: OpContext, q: Array) -> Array:
    """SQRT (`elementwise.cc`): computed in single precision, and truncated to a level, not rounded."""
    in_scale, in_zero, scale, zero = op.scales()
    real = np.sqrt(np.float32(in_scale) * np.maximum(q - in_zero, 0).astype(np.float32))
    return np.asarray((real / np.float32(scale)).astype(np.int64) + zero)


def reciprocal_root(op: OpContext, q: Array) -> Array:
    """RSQRT (`elementwise.cc`), with 20 spare bits; zero and values below become the highest level."""
    in_scale, in_zero, scale, zero = op.scales()
    real = 1.0 / (math.sqrt(np.float32(in_scale)) * float(np.float32(scale)))
    multiplier, shift = quantize_multiplier(real)
    found = np.full(q.shape, RANGES[op.output().type][1], np.int64)
    for i, value in enumerate((q - in_zero).tolist()):
        # Levels below the zero point are not looked up: the kernel raises for them first.
        if value > 0:
            root, left = inverse_square_root(value)
            one = multiply_by_quantized_multiplier(np.asarray(1), root, left + 20)
            found[i] = multiply_by_quantized_multiplier(one, multiplier, shift - 20) + zero
    return found


def relu(op: OpContext, q: Array, low: float, high: float) -> Array:
    """RELU family (`activations.cc`): rescaled to the output, then clamped to real `low` and `high`."""
    in_scale, in_zero, scale, zero = op.scales()
    below, above = RANGES[op.output().type]
    below = max(below, zero + _level(low, scale))
    if math.isfinite(high):
        above = min(above, zero + _level(high, scale))
    rescaled = scaled(q - in_zero, float(np.float32(in_scale) / np.float32(scale)))
    return np.asarray(np.clip(zero + rescaled, below, above))


def _level(real: float, scale: float) -> int:
    return int(round_half_away(np.float64(np.float32(real) / np.float32(scale))))


def leaky_relu(op: OpContext, q: Array, alpha: np.float32) -> Array:
    """LEAKY_RELU (`reference/leaky_relu.h`): one multiplier for each sign.

    A quantised multiplier cannot be negative: a negative alpha multiplies by its size and negates.
    """
    in_scale, in_zero, scale, zero = op.scales()
    centred = q - in_zero
    identity = scaled(centred, float(np.float32(in_scale) / np.float32(scale)))
    slope = float(np.float32(in_scale) * alpha / np.float32(scale))
    sloped = -scaled(centred, -slope) if slope < 0 else scaled(centred, slope)
    return np.where(centred >= 0, identity, sloped) + zero


def through_float(op: OpContext, q: Array, function: Callable[[Array, Array, Array], object]) -> Array:
    """Dequantise, apply the float function, quantise with ties away from zero (`LUTPopulate` of `common.h`).

    `function(x, y, temporary)` writes y.
    """
    in_scale, in_zero, scale, zero = op.scales()
    x = np.float32(in_scale) * (q - in_zero).astype(np.float32)
    y = np.empty_like(x)
    function(x, y, np.empty_like(x))
    inverse = np.float32(1) / np.float32(scale)
    # Infinities are cut to a value beyond any 8- or 16-bit level, so that casting them is defined.
    return np.asarray(np.clip(round_half_away(y * inverse), -70000, 70000).astype(np.int64) + zero)


def hard_swish(op: OpContext, q: Array) -> Array:
    """HARD_SWISH (`reference/hard_swish.h`): 16-bit fixed point with 7 spare bits.

    The gate relu6(x + 3) / 6 is computed on a scale where 3.0 is 32768. Every product and shift rounds as the
    reference's does: some round, one truncates.
    """
    in_scale, in_zero, scale, zero = op.scales()
    fine_scale = np.float32(1 / 128) * np.float32(in_scale)
    fine = (q - in_zero) << 7
    out_multiplier, out_exponent = _multiplier16(float(fine_scale / np.float32(scale)))
    gate_multiplier, gate_exponent = _multiplier16(float(fine_scale / np.float32(3 / 32768)))
    # One bit of the left shift waits until after the product: saturation here then never decides the result.
    gate = _saturate16(fine << max(gate_exponent - 1, 0))
    gate = _rounding_high_mul16(gate, gate_multiplier)
    if gate_exponent > 0:
        gate = _saturate16(gate << 1)
    gate = rounding_shift_right(gate, max(-gate_exponent, 0))
    # From [-1, 1] to [0, 1], both with 15 fractional bits.
    gate = (gate + (1 << 15)) >> 1
    # SaturatingDoublingHighMul does not round, and C++ divides towards zero.
    raw = gate * _rounding_high_mul16(fine, out_multiplier)
    truncated = np.sign(raw) * np.minimum(np.abs(raw) >> 15, _INT16_MAX)
    return rounding_shift_right(truncated, -out_exponent) + zero


def _multiplier16(real: float) -> tuple[int, int]:
    multiplier, exponent = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, _INT16_MAX), exponent


def _saturate16(x: Array) -> Array:
    return np.asarray(np.clip(x, -_INT16_MAX - 1, _INT16_MAX))


def _rounding_high_mul16(x: Array, multiplier: int) -> Array:
    return np.asarray(np.minimum((x * multiplier + (1 << 14)) >> 15, _INT16_MAX))
