"""Reductions over axes: MEAN, SUM, REDUCE_MAX, REDUCE_MIN."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise import require_equal_quantization
from runtime.ops.shapes import axis_index
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.quantization import multiply_by_quantized_multiplier, quantize_multiplier


def _axes(op: OpContext) -> tuple[int, ...]:
    rank = len(op.input().shape)
    return tuple(sorted({axis_index(op, a, rank) for a in op.integers(1, "axis")}))


def reduced_shape(op: OpContext) -> tuple[Shape, ...]:
    """The input's shape without the axes, or with 1 in their place (`keep_dims`)."""
    axes, keep = _axes(op), op.option("keep_dims")
    shape = op.input().shape
    return (tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes),)


_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.SUM: np.add,
    BuiltinOperator.REDUCE_MAX: np.maximum,
    BuiltinOperator.REDUCE_MIN: np.minimum,
}


@operator(*_UFUNCS, max_version=3, infer=reduced_shape)
def reduction(op: OpContext) -> Kernel:
    """Sum or extremum; float32, int32, int64, extrema of int8 with equal quantisation."""
    is_sum = op.operator.opcode is BuiltinOperator.SUM
    extra = () if is_sum else (TensorType.INT8,)
    kind = op.require(TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, *extra)
    op.require_same_type(0)
    if kind is TensorType.INT8:
        require_equal_quantization(op, op.input(), op.output())
    ufunc, axes, x = _UFUNCS[op.operator.opcode], _axes(op), op.read(0)
    y = _kept(op, axes)
    if not is_sum and not x.size:
        raise op.unsupported("extremum of an empty tensor")

    def run() -> None:
        if axes:
            ufunc.reduce(x, axis=axes, out=y, keepdims=True)
        else:
            np.copyto(y, x)

    return run


def _kept(op: OpContext, axes: tuple[int, ...]) -> Array:
    """The output with 1 in place of the reduced axes."""
    return op.write().reshape([1 if i in axes else d for i, d in enumerate(op.input().shape)])


@operator(BuiltinOperator.MEAN, max_version=3, infer=reduced_shape)
def mean(op: OpContext) -> Kernel:
    """Arithmetic mean; float32, or int8 as `reference/integer_ops/mean.h` (one rounding of sum / count)."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT8)
    op.require_same_type(0)
    axes, x = _axes(op), op.read(0)
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        raise op.unsupported("mean of an empty tensor")
    if kind is TensorType.INT8:
        return _mean_int8(op, axes, count)
    y, scale = _kept(op, axes), np.float32(1 / count)

    def run() -> None:
        np.add.reduce(x, axis=axes, out=y, keepdims=True)
        np.multiply(y, scale, out=y)

    return run


def _mean_int8(op: OpContext, axes: tuple[int, ...], count: int) -> Kernel:
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    x, y = op.read(0), _kept(op, axes)
    multiplier, shift = quantize_multiplier(in_scale / out_scale)
    fold = min(count.bit_length() - 1, 32, 31 + shift)
    multiplier, shift = (multiplier << fold) // count, shift - fold
    total = op.temporary(y.shape, np.int64)

    def run() -> None:
        np.add.reduce(x, axis=axes, out=total, keepdims=True, dtype=np.int64)
        np.subtract(total, in_zero * count, out=total)
        scaled = multiply_by_quantized_multiplier(total, multiplier, shift)
        np.clip(scaled + out_zero, -128, 127, out=y, casting="unsafe")

    return run
