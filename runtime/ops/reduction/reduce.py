"""Reductions over axes: MEAN, SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL."""

import math
from collections.abc import Mapping

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.quantization import (
    RANGES,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    round_half_away,
)
from runtime.ops.support.shapes import axis_index


def _axes(op: OpContext) -> tuple[int, ...]:
    rank = len(op.input().shape)
    return tuple(sorted({axis_index(op, a, rank) for a in op.integers(1, "axis")}))


def reduced_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape without the axes, or with 1 in their place (`keep_dims`)."""
    axes, keep = _axes(op), op.option("keep_dims")
    shape = op.input().shape
    return (tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes),)


_LARGEST = np.finfo(np.float32).max
"""The largest finite float32, from which the reference's REDUCE_MIN starts, and negated REDUCE_MAX."""

_UFUNCS: Mapping[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.REDUCE_PROD: np.multiply,
    Op.REDUCE_ANY: np.logical_or,
    Op.REDUCE_ALL: np.logical_and,
    Op.REDUCE_MAX: np.maximum,
    Op.REDUCE_MIN: np.minimum,
}


_NUMBERS = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
_FLAGS = (TensorType.BOOL,)
_FACTORS = (TensorType.INT8, TensorType.INT16)
_EXTREMA = (Op.REDUCE_MAX, Op.REDUCE_MIN)


@operator(Op.SUM, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED, *_FLAGS))
def total(op: OpContext) -> Kernel:
    """SUM; quantised types are rescaled (QuantizedMeanOrSum of `reference/reduce.h`), flags give any."""
    kind = op.input().type
    op.require_same_type(0)
    if kind is TensorType.UINT8:
        return _scaled_sum(op, _axes(op), 1)
    return _float_scaled_sum(op, _axes(op)) if kind in QUANTIZED else _reduced(op)


@operator(Op.REDUCE_PROD, max_version=2, infer=reduced_shape, types=(*_NUMBERS, *_FACTORS, *_FLAGS))
def product(op: OpContext) -> Kernel:
    """REDUCE_PROD; quantised types are rescaled after each factor, flags give all."""
    kind = op.input().type
    op.require_same_type(0)
    if kind in _FACTORS:
        return _scaled_product(op, _axes(op))
    return _reduced(op)


@operator(*_EXTREMA, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED, *_FLAGS))
def extremum(op: OpContext) -> Kernel:
    """REDUCE_MAX, REDUCE_MIN, NaN left out; quantised types need equal quantisation."""
    kind = op.input().type
    op.require_same_type(0)
    if kind in QUANTIZED and op.input().quantization is not None:
        op.require_equal_quantization(op.input(), op.output())
    if not op.input().elements:
        raise op.unsupported("extremum of an empty tensor")
    if kind is TensorType.FLOAT32:
        return _float_extremum(op)
    return _reduced(op)


def _float_extremum(op: OpContext) -> Kernel:
    """Return the kernel of floats, which starts from the far end of the finite range, as the reference does.

    NaN, and infinities of that sign, leave the start in place. A single element is copied as it is.
    """
    largest = op.operator.opcode is Op.REDUCE_MAX
    ufunc, axes, x = np.fmax if largest else np.fmin, _axes(op), op.read(0)
    start = np.float32(-_LARGEST if largest else _LARGEST)
    y = _kept(op, axes)
    if axes and x.size == 1 and len(axes) == x.ndim:
        return lambda: np.copyto(y, x)

    def run() -> None:
        ufunc.reduce(x, axis=axes, out=y, keepdims=True)
        ufunc(y, start, out=y)

    return run


@operator(Op.REDUCE_ANY, Op.REDUCE_ALL, infer=reduced_shape, types=(TensorType.BOOL,))
def logical_reduction(op: OpContext) -> Kernel:
    """REDUCE_ANY, REDUCE_ALL of flags."""
    return _reduced(op)


def _reduced(op: OpContext) -> Kernel:
    ufunc, axes, x = _UFUNCS[op.operator.opcode], _axes(op), op.read(0)
    # Only sums and products round, so that only there the order of the terms shows.
    if axes and ufunc in (np.add, np.multiply) and op.input().type is TensorType.FLOAT32:
        return _in_order(op, ufunc)
    y = _kept(op, axes)

    def run() -> None:
        if axes:
            ufunc.reduce(x, axis=axes, out=y, keepdims=True)
        else:
            np.copyto(y, x)

    return run


def _in_order(op: OpContext, ufunc: np.ufunc) -> Kernel:
    """Return a kernel that reduces floats one after the other in row-major order, as the reference does.

    numpy itself adds in pairs, which rounds differently. With the reduced axes in front, whole rows are
    added, and each element of a row sees its terms in their order; a single row needs `accumulate`.
    """
    axes, x = _axes(op), op.read(0)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    ordered, y = x.transpose(axes + kept), op.write().reshape(-1)
    terms = math.prod(x.shape[a] for a in axes)
    rows = ordered.reshape(terms, y.size)
    # Where `reshape` had to copy, its result holds what x was while planning: each run copies again.
    copied = not (rows.flags.c_contiguous and np.shares_memory(rows, x))
    rows = op.temporary(rows.shape) if copied else rows
    target = rows.reshape(ordered.shape)

    def run() -> None:
        if copied:
            np.copyto(target, ordered)
        if y.size > 1:
            ufunc.reduce(rows, axis=0, out=y)
        else:
            y[:] = ufunc.accumulate(rows[:, 0])[-1:]

    return run


def _float_scaled_sum(op: OpContext, axes: tuple[int, ...]) -> Kernel:
    """Return a kernel that sums levels, and moves the sums to the output's scale in single precision."""
    in_scale, in_zero, out_scale, out_zero = op.scales()
    x, y = op.read(0), _kept(op, axes)
    scale = np.float32(in_scale) / np.float32(out_scale)
    bias = np.float32(-in_zero) * scale * np.float32(math.prod(x.shape[a] for a in axes))
    bounds = RANGES[op.output().type]

    def run() -> None:
        sums = np.add.reduce(x, axis=axes, keepdims=True, dtype=np.int64) if axes else x
        levels = round_half_away(sums.astype(np.float32) * scale + bias) + np.float32(out_zero)
        np.clip(levels, *bounds, out=y, casting="unsafe")

    return run


def _scaled_product(op: OpContext, axes: tuple[int, ...]) -> Kernel:
    """Return a kernel of quantised products (QuantizedReduceProd of `reference/reduce.h`).

    The scales' ratio is shared among the factors, so that every step stays within its integers. The
    multiplier has 16 bits, as in `MultiplyByQuantizedMultiplier` of int64.
    """
    in_scale, in_zero, out_scale, out_zero = op.scales()
    x = op.read(0)
    factors = math.prod(x.shape[a] for a in axes)
    if not factors:
        raise op.unsupported("a product of no levels")
    multiplier, shift = quantize_multiplier(in_scale / out_scale ** (1.0 / factors))
    # `scaled` adds half of what it shifts out, 2^(14 - shift).
    if shift > 14:
        raise op.unsupported("scales that make each factor 2^14 times as large")
    narrow = min((multiplier + (1 << 15)) >> 16, 0x7FFF)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    y, bounds = op.write().reshape(-1), RANGES[op.output().type]

    def scaled(x: Array) -> Array:
        return np.asarray((x * narrow + (1 << (14 - shift))) >> (15 - shift))

    def run() -> None:
        rows = x.transpose(axes + kept).reshape(factors, -1)
        product = rows[0].astype(np.int64) - in_zero
        for row in rows[1:]:
            product = scaled(product * (row.astype(np.int64) - in_zero))
        np.clip(scaled(product) + out_zero, *bounds, out=y, casting="unsafe")

    return run


def _kept(op: OpContext, axes: tuple[int, ...]) -> Array:
    return op.write().reshape([1 if i in axes else d for i, d in enumerate(op.input().shape)])


@operator(Op.MEAN, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED))
def mean(op: OpContext) -> Kernel:
    """MEAN; integers truncate towards zero, quantised types round once (`reference/integer_ops/mean.h`)."""
    kind = op.input().type
    op.require_same_type(0)
    axes, x = _axes(op), op.read(0)
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        raise op.unsupported("mean of an empty tensor")
    if kind in QUANTIZED:
        return _scaled_sum(op, axes, count)
    if kind is not TensorType.FLOAT32:
        return _integer_mean(op, axes, count)
    add_up, y, divisor = _in_order(op, np.add), op.write(), np.float32(count)

    def run() -> None:
        add_up()
        np.divide(y, divisor, out=y)

    return run


def _integer_mean(op: OpContext, axes: tuple[int, ...], count: int) -> Kernel:
    """Return the kernel of integers, whose sums have 64 bits and divide towards zero, as in C++."""
    x, y = op.read(0), _kept(op, axes)

    def run() -> None:
        total = np.add.reduce(x, axis=axes, keepdims=True, dtype=np.int64)
        # The size of the least int64 overflows to itself, and is right as an unsigned number.
        magnitude = np.abs(total).view(np.uint64) // np.uint64(count)
        np.copyto(y, np.where(total < 0, -1, 1) * magnitude.astype(np.int64), casting="unsafe")

    return run


def _scaled_sum(op: OpContext, axes: tuple[int, ...], count: int) -> Kernel:
    """Return a kernel of sums of levels, divided by `count`, on the output's scale.

    The division is part of the multiplier, which is shifted left first as far as it has room for, so that
    there is one rounding; LiteRT does the same.
    """
    in_scale, in_zero, out_scale, out_zero = op.scales()
    x, y = op.read(0), _kept(op, axes)
    terms = math.prod(x.shape[a] for a in axes)
    multiplier, shift = quantize_multiplier(in_scale / out_scale)
    # floor(log2 count), but no further than the reference goes: 32 bits, and a right shift of 31 in total.
    fold = min(count.bit_length() - 1, 32, 31 + shift)
    multiplier, shift = (multiplier << fold) // count, shift - fold
    total = op.temporary(y.shape, np.int64)
    bounds = RANGES[op.output().type]

    def run() -> None:
        if axes:
            np.add.reduce(x, axis=axes, out=total, keepdims=True, dtype=np.int64)
        else:
            np.copyto(total, x)
        np.subtract(total, in_zero * terms, out=total)
        scaled = multiply_by_quantized_multiplier(total, multiplier, shift)
        np.clip(scaled + out_zero, *bounds, out=y, casting="unsafe")

    return run
