"""Reductions over axes: MEAN, SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_ANY, REDUCE_ALL."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise import require_equal_quantization
from runtime.ops.shapes import axis_index
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.ops.type_sets import QUANTIZED
from runtime.quantization import RANGES, multiply_by_quantized_multiplier, quantize_multiplier


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
    BuiltinOperator.REDUCE_PROD: np.multiply,
    BuiltinOperator.REDUCE_ANY: np.logical_or,
    BuiltinOperator.REDUCE_ALL: np.logical_and,
    BuiltinOperator.REDUCE_MAX: np.maximum,
    BuiltinOperator.REDUCE_MIN: np.minimum,
}


_NUMBERS = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
_EXTREMA = (BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN)


@operator(BuiltinOperator.SUM, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED))
def total(op: OpContext) -> Kernel:
    """Sum; of levels rescaled as in `reference/reduce.h` (QuantizedMeanOrSum)."""
    kind = op.require(*_NUMBERS, *QUANTIZED)
    op.require_same_type(0)
    return _scaled_sum(op, _axes(op), 1) if kind in QUANTIZED else _reduced(op)


@operator(BuiltinOperator.REDUCE_PROD, max_version=2, infer=reduced_shape, types=_NUMBERS)
def product(op: OpContext) -> Kernel:
    """Product."""
    op.require(*_NUMBERS)
    op.require_same_type(0)
    return _reduced(op)


@operator(*_EXTREMA, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED))
def extremum(op: OpContext) -> Kernel:
    """The largest or smallest; levels need equal quantisation."""
    kind = op.require(*_NUMBERS, *QUANTIZED)
    op.require_same_type(0)
    if kind in QUANTIZED and op.input().quantization is not None:
        require_equal_quantization(op, op.input(), op.output())
    if not op.input().elements:
        raise op.unsupported("extremum of an empty tensor")
    return _reduced(op)


@operator(
    BuiltinOperator.REDUCE_ANY,
    BuiltinOperator.REDUCE_ALL,
    max_version=1,
    infer=reduced_shape,
    types=(TensorType.BOOL,),
)
def logical_reduction(op: OpContext) -> Kernel:
    """Whether any, or all, hold."""
    op.require(TensorType.BOOL)
    return _reduced(op)


def _reduced(op: OpContext) -> Kernel:
    ufunc, axes, x = _UFUNCS[op.operator.opcode], _axes(op), op.read(0)
    y = _kept(op, axes)

    def run() -> None:
        if axes:
            ufunc.reduce(x, axis=axes, out=y, keepdims=True)
        else:
            np.copyto(y, x)

    return run


def _kept(op: OpContext, axes: tuple[int, ...]) -> Array:
    """The output with 1 in place of the reduced axes."""
    return op.write().reshape([1 if i in axes else d for i, d in enumerate(op.input().shape)])


@operator(BuiltinOperator.MEAN, max_version=3, infer=reduced_shape, types=(*_NUMBERS, *QUANTIZED))
def mean(op: OpContext) -> Kernel:
    """Arithmetic mean; of integers truncated, of levels rounded once (`reference/integer_ops/mean.h`)."""
    kind = op.require(*_NUMBERS, *QUANTIZED)
    op.require_same_type(0)
    axes, x = _axes(op), op.read(0)
    count = math.prod(x.shape[a] for a in axes)
    if count == 0:
        raise op.unsupported("mean of an empty tensor")
    if kind in QUANTIZED:
        return _scaled_sum(op, axes, count)
    if kind is not TensorType.FLOAT32:
        return _integer_mean(op, axes, count)
    y, scale = _kept(op, axes), np.float32(1 / count)

    def run() -> None:
        np.add.reduce(x, axis=axes, out=y, keepdims=True)
        np.multiply(y, scale, out=y)

    return run


def _integer_mean(op: OpContext, axes: tuple[int, ...], count: int) -> Kernel:
    x, y = op.read(0), _kept(op, axes)

    def run() -> None:
        total = np.add.reduce(x, axis=axes, keepdims=True, dtype=np.int64)
        np.copyto(y, np.sign(total) * (np.abs(total) // count), casting="unsafe")

    return run


def _scaled_sum(op: OpContext, axes: tuple[int, ...], count: int) -> Kernel:
    """The sum of levels over `count`, folded into the multiplier, on the output's scale."""
    in_scale, in_zero = op.scale_and_zero_point(op.input())
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    x, y = op.read(0), _kept(op, axes)
    terms = math.prod(x.shape[a] for a in axes)
    multiplier, shift = quantize_multiplier(in_scale / out_scale)
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
