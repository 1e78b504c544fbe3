"""Between float and quantised values: QUANTIZE, DEQUANTIZE, FAKE_QUANT; and CAST."""

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, Value, operator
from runtime.ops.support.blocks import flat_blocks
from runtime.ops.support.quantization import (
    RANGES,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
)
from runtime.ops.support.shapes import same_shape

_QUANTIZED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
_QUANTIZABLE = (TensorType.FLOAT32, *_QUANTIZED, TensorType.INT32)
_INT32_RANGE = 2.0**31
"""The least magnitude that int32 cannot hold. LiteRT rounds to int32 before it adds the zero point, so that
larger quotients become int32's least value, as x86 casts them."""


@operator(
    Op.DEQUANTIZE, max_version=9, infer=same_shape, types=(TensorType.FLOAT16, TensorType.INT4, *_QUANTIZED)
)
def dequantize(op: OpContext) -> Kernel:
    """DEQUANTIZE: widen float16, or compute scale * (q - zero_point), per tensor or channel; to float32.

    The product is computed in float64 and rounded once.
    """
    kind = op.input().type
    if op.output().type is not TensorType.FLOAT32:
        raise op.unsupported(f"output of type {op.output().type.name}")
    x, y = op.read(0), op.write()
    if kind is TensorType.FLOAT16:
        return lambda: np.copyto(y, x)
    scale, zero = _parameters(op, op.input())
    return lambda: np.copyto(y, (x - zero) * scale, casting="same_kind")


def _parameters(op: OpContext, value: Value) -> tuple[Array, Array]:
    """Return float64 scales and int64 zero points, shaped to broadcast along the quantised dimension."""
    q = value.quantization
    if q is None or q.blocks is not None or q.is_custom:
        raise op.unsupported(f"tensor {value.name!r} has no scales")
    shape = [1] * len(value.shape)
    if len(q.scales) > 1:
        shape[q.quantized_dimension] = len(q.scales)
    return np.array(q.scales).reshape(shape), np.array(q.zero_points, np.int64).reshape(shape)


@operator(Op.QUANTIZE, max_version=6, infer=same_shape, types=_QUANTIZABLE)
def quantize(op: OpContext) -> Kernel:
    """QUANTIZE: float32 to int8, uint8 or int16 (`reference/quantize.h`), or between those (`requantize.h`).

    int16 also converts to int32, and int32 to any of the three.
    """
    kind = op.input().type
    target = op.output().type
    wide = kind is TensorType.INT16 and target is TensorType.INT32
    if target not in _QUANTIZED and not wide:
        raise op.unsupported(f"output of type {target.name}")
    low, high = RANGES[target]
    if kind is TensorType.FLOAT32 and op.output().quantization is not None:
        scales, zeros = _parameters(op, op.output())
        if scales.size > 1:
            return _quantize_by_channel(op, scales, zeros)
    scale, zero = op.scale_and_zero_point(op.output())
    if kind is not TensorType.FLOAT32:
        return _requantize(op, scale, zero, (low, high))
    pieces = flat_blocks(op.read(0), op.write())
    divisor = np.float32(scale)

    def run() -> None:
        for x, y in pieces:
            levels = round_half_away(x / divisor).astype(np.float64)
            # The negation also finds NaN, for which every comparison is False.
            if not np.abs(levels).max() < _INT32_RANGE:
                levels = _wrapped(levels, zero)
            np.copyto(y, np.clip(levels + zero, low, high), casting="unsafe")

    return run


def _quantize_by_channel(op: OpContext, scales: Array, zeros: Array) -> Kernel:
    x, y, divisors = op.read(0), op.write(), scales.astype(np.float32)
    bounds = RANGES[op.output().type]

    def run() -> None:
        levels = round_half_away(x / divisors).astype(np.float64)
        levels = np.where(np.abs(levels) < _INT32_RANGE, levels, -_INT32_RANGE) + zeros
        np.copyto(y, np.clip(levels, *bounds), casting="unsafe")

    return run


def _wrapped(levels: Array, zero: int) -> Array:
    """Replace what does not fit int32 by its least value.

    Adding a zero point below 0 to that wraps around to the greatest values in int32; here, in float64, the
    positive end stands for it.
    """
    least = _INT32_RANGE if zero < 0 else -_INT32_RANGE
    return np.where(np.abs(levels) < _INT32_RANGE, levels, least)


def _requantize(op: OpContext, scale: float, zero: int, clamp: tuple[int, int]) -> Kernel:
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    multiplier = quantize_multiplier(in_scale / scale)
    pieces = flat_blocks(op.read(0), op.write())

    def run() -> None:
        for x, y in pieces:
            levels = multiply_by_quantized_multiplier(x.astype(np.int64) - in_zero, *multiplier) + zero
            np.copyto(y, np.clip(levels, *clamp), casting="unsafe")

    return run


_CASTABLE = (
    TensorType.FLOAT32,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.INT16,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.BOOL,
    TensorType.FLOAT16,
    TensorType.FLOAT64,
    TensorType.UINT16,
    TensorType.UINT32,
    TensorType.COMPLEX64,
)


@operator(Op.CAST, max_version=9, infer=same_shape, types=_CASTABLE)
def cast(op: OpContext) -> Kernel:
    """CAST to the output's type: to bool as x != 0; integers wrap; float to integer truncates and saturates.

    The tensors' types count, not those of the options, which may be wrong or absent. A complex number casts
    its real part; float64 becomes float16 by way of float32, rounded twice, as in LiteRT.
    """
    target = op.output().type
    if target not in _CASTABLE:
        raise op.unsupported(f"output of type {target.name}")
    x, y = op.read(0), op.write()
    if x.dtype.kind == "c" and y.dtype.kind != "c":
        x = x.real
    if target is TensorType.BOOL:
        return lambda: np.copyto(y, x != 0)
    if x.dtype.kind == "f" and y.dtype.kind in "iu":
        return _truncate(x, y)
    if x.dtype == np.float64 and y.dtype == np.float16:
        return lambda: np.copyto(y, x.astype(np.float32), casting="unsafe")
    return lambda: np.copyto(y, x, casting="unsafe")


def _truncate(x: Array, y: Array) -> Kernel:
    """Cast float to integer: towards zero, saturating at the type's bounds; NaN becomes the upper bound."""
    bounds = np.iinfo(y.dtype)

    # The upper bound is set as an integer: 2^63 - 1 and 2^64 - 1 have no float64, and the next one overflows.
    def run() -> None:
        wide = np.trunc(x.astype(np.float64))
        inside = np.where(wide < bounds.max, np.maximum(wide, float(bounds.min)), 0)
        np.copyto(y, inside, casting="unsafe")
        np.copyto(y, y.dtype.type(bounds.max), where=~(wide < bounds.max))

    return run


@operator(Op.FAKE_QUANT, max_version=2, infer=same_shape, types=(TensorType.FLOAT32,))
def fake_quant(op: OpContext) -> Kernel:
    """FAKE_QUANT: round to the grid of `num_bits` over [min, max], nudged so that zero lies on the grid.

    float32 of any shape; NudgeQuantizationRange and FakeQuantizeArray of `fakequant.h`, in single precision.
    """
    low, high, bits = np.float32(op.option("min")), np.float32(op.option("max")), int(op.option("num_bits"))
    if not 2 <= bits <= 16:
        raise op.unsupported(f"{bits} bits, 2 to 16 are defined")
    least, most = np.float32(1 if op.option("narrow_range") else 0), np.float32((1 << bits) - 1)
    if low == high:
        raise op.unsupported("an empty range")
    with np.errstate(all="ignore"):
        scale = (high - low) / (most - least)
        zero = np.float32(round_half_away(np.float64(np.clip(least - low / scale, least, most))))
        nudged_low, nudged_high = np.float32((least - zero) * scale), np.float32((most - zero) * scale)
        inverse = np.float32(1) / scale
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            clamped = np.clip(x, nudged_low, nudged_high)
            levels = np.floor((clamped - nudged_low) * inverse + np.float32(0.5))
            np.copyto(y, levels * scale + nudged_low)

    return run
