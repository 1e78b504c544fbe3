"""int8 element-wise operators as tables: the reference rule is evaluated for every level, or pair of levels.

A rule maps int64 levels to int64 levels exactly as LiteRT's reference kernel does; 256 levels (65536 pairs)
are few, so the rule runs once while planning and `invoke` only looks up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.ops.blocks import broadcast_blocks, flat_blocks
from runtime.ops.spec import Array, Kernel, OpContext
from runtime.quantization import (
    RANGES,
    activation_range,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
    rounding_shift_right,
)

PairRule: TypeAlias = Callable[[OpContext, Array, Array], Array]

_LEFT_SHIFT = 20
_INT16_MAX = 32767


def _all_levels() -> Array:
    """Every int8 level, at the index that its bits have as uint8."""
    return np.arange(256).astype(np.uint8).view(np.int8).astype(np.int64)


def level_table(op: OpContext, rule: Callable[[Array], Array]) -> Kernel:
    """Apply `rule` to each element of input 0 through a table of 256 bytes."""
    table = np.clip(rule(_all_levels()), -128, 127).astype(np.int8).tobytes()
    pieces = flat_blocks(op.write().view(np.uint8), op.read(0).view(np.uint8))

    def run() -> None:
        for y, x in pieces:
            y[:] = np.frombuffer(x.tobytes().translate(table), np.uint8)

    return run


def pair_table(op: OpContext, rule: PairRule) -> Kernel:
    """Apply `rule` to the elements of inputs 0 and 1, broadcast; the fused activation clamps the result."""
    scale, zero = op.scale_and_zero_point(op.output())
    activation = op.operator.options.get("fused_activation_function", ActivationFunctionType.NONE)
    every = _all_levels()
    raw = rule(op, every[:, None], every[None, :]) + zero
    flat = (
        np.clip(raw, *activation_range(activation, scale, zero, TensorType.INT8)).astype(np.int8).reshape(-1)
    )
    pieces = broadcast_blocks(op.write(), op.read(0).view(np.uint8), op.read(1).view(np.uint8))
    index = op.temporary((max((p[0].size for p in pieces), default=0),), np.intp)
    steps = [(*p, index[: p[0].size].reshape(p[0].shape)) for p in pieces]

    def run() -> None:
        for out, left, right, where in steps:
            np.multiply(left, np.intp(256), out=where)
            np.add(where, right, out=where)
            np.take(flat, where, out=out, mode="clip")

    return run


def scaled(x: Array, real: float) -> Array:
    """x * real with the reference's roundings."""
    return multiply_by_quantized_multiplier(x, *quantize_multiplier(float(real)))


def total(op: OpContext, x: Array, z: Array) -> Array:
    """`reference/integer_ops/add.h`, `reference/sub.h`: both on one scale with 20 spare bits."""
    scale_x, zero_x = op.scale_and_zero_point(op.input(0))
    scale_z, zero_z = op.scale_and_zero_point(op.input(1))
    out_scale, _ = op.scale_and_zero_point(op.output())
    twice = 2 * max(scale_x, scale_z)
    wide_x = scaled((x - zero_x) << _LEFT_SHIFT, scale_x / twice)
    wide_z = scaled((z - zero_z) << _LEFT_SHIFT, scale_z / twice)
    result = wide_x - wide_z if op.operator.opcode is BuiltinOperator.SUB else wide_x + wide_z
    return scaled(result, twice / ((1 << _LEFT_SHIFT) * out_scale))


def product(op: OpContext, x: Array, z: Array) -> Array:
    """`reference/integer_ops/mul.h`; the multiplier is a product in single precision, as in `mul.cc`."""
    scale_x, zero_x = op.scale_and_zero_point(op.input(0))
    scale_z, zero_z = op.scale_and_zero_point(op.input(1))
    out_scale, _ = op.scale_and_zero_point(op.output())
    real = np.float32(scale_x) * np.float32(scale_z) / np.float32(out_scale)
    return scaled((x - zero_x) * (z - zero_z), float(real))


def prelu(op: OpContext, x: Array, alpha: Array) -> Array:
    """`reference/prelu.h`: one multiplier where x is positive, another for x * alpha."""
    in_scale, in_zero = op.scale_and_zero_point(op.input(0))
    alpha_scale, alpha_zero = op.scale_and_zero_point(op.input(1))
    out_scale = np.float32(op.scale_and_zero_point(op.output())[0])
    centred = x - in_zero
    positive = scaled(centred, float(np.float32(in_scale) / out_scale))
    slope = float(np.float32(in_scale) * np.float32(alpha_scale) / out_scale)
    return np.where(centred >= 0, positive, scaled(centred * (alpha - alpha_zero), slope))


def relu(op: OpContext, q: Array, low: float, high: float) -> Array:
    """Rescaled to the output's quantisation, then clamped to real `low` and `high` (`activations.cc`)."""
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    below, above = RANGES[TensorType.INT8]
    below = max(below, zero + _level(low, scale))
    if math.isfinite(high):
        above = min(above, zero + _level(high, scale))
    rescaled = scaled(q - in_zero, float(np.float32(in_scale) / np.float32(scale)))
    return np.asarray(np.clip(zero + rescaled, below, above))


def _level(real: float, scale: float) -> int:
    return int(round_half_away(np.float64(np.float32(real) / np.float32(scale))))


def leaky_relu(op: OpContext, q: Array, alpha: np.float32) -> Array:
    """`reference/leaky_relu.h`: one multiplier for each sign."""
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    centred = q - in_zero
    identity = scaled(centred, float(np.float32(in_scale) / np.float32(scale)))
    sloped = scaled(centred, float(np.float32(in_scale) * alpha / np.float32(scale)))
    return np.where(centred >= 0, identity, sloped) + zero


def through_float(op: OpContext, q: Array, function: Callable[[Array, Array, Array], object]) -> Array:
    """Dequantised, the float function, quantised with ties away from zero (`LUTPopulate` of `common.h`)."""
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    x = np.float32(in_scale) * (q - in_zero).astype(np.float32)
    y = np.empty_like(x)
    function(x, y, np.empty_like(x))
    inverse = np.float32(1) / np.float32(scale)
    return np.asarray(np.clip(round_half_away(y * inverse), -512, 512).astype(np.int64) + zero)


def hard_swish(op: OpContext, q: Array) -> Array:
    """`reference/hard_swish.h`: 16-bit fixed point with 7 spare bits; 3.0 is 32768 on the relu's scale."""
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    scale, zero = op.scale_and_zero_point(op.output())
    fine_scale = np.float32(1 / 128) * np.float32(in_scale)
    fine = (q - in_zero) << 7
    out_multiplier, out_exponent = _multiplier16(float(fine_scale / np.float32(scale)))
    gate_multiplier, gate_exponent = _multiplier16(float(fine_scale / np.float32(3 / 32768)))
    gate = _saturate16(fine << max(gate_exponent - 1, 0))
    gate = _rounding_high_mul16(gate, gate_multiplier)
    if gate_exponent > 0:
        gate = _saturate16(gate << 1)
    gate = rounding_shift_right(gate, max(-gate_exponent, 0))
    gate = (gate + (1 << 15)) >> 1
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
