"""STABLEHLO_ADD, MULTIPLY, MAXIMUM, MINIMUM, AND and SHIFT_LEFT: two operands of one shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.blocks import pairwise
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import operator
from runtime.ops.support.shapes import broadcast_inputs
from runtime.ops.support.value import Array

_NUMBERS = (
    TensorType.FLOAT32,
    TensorType.FLOAT16,
    TensorType.FLOAT64,
    TensorType.BOOL,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.UINT8,
    TensorType.UINT16,
    TensorType.UINT32,
    TensorType.UINT64,
)
_WHOLE = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)

_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.STABLEHLO_ADD: np.add,
    BuiltinOperator.STABLEHLO_MULTIPLY: np.multiply,
}
_EXTREMA: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.STABLEHLO_MAXIMUM: np.less,
    BuiltinOperator.STABLEHLO_MINIMUM: np.greater,
}


@operator(*_UFUNCS, max_version=1, infer=broadcast_inputs, types=_NUMBERS)
def arithmetic(op: OpContext) -> Kernel:
    """STABLEHLO_ADD, STABLEHLO_MULTIPLY of two operands; integers wrap."""
    kind = op.require(*_NUMBERS)
    op.require(kind, i=1)
    return pairwise(op, _UFUNCS[op.operator.opcode])


@operator(*_EXTREMA, max_version=1, infer=broadcast_inputs, types=_NUMBERS)
def extremum(op: OpContext) -> Kernel:
    """STABLEHLO_MAXIMUM, STABLEHLO_MINIMUM: the first operand where either is NaN.

    MAXIMUM and MINIMUM give the second one: LiteRT's two kernels compare in opposite order.
    """
    kind = op.require(*_NUMBERS)
    op.require(kind, i=1)
    follows = _EXTREMA[op.operator.opcode]

    def apply(x: Array, z: Array, y: Array) -> None:
        second = follows(x, z)
        np.copyto(y, x)
        np.copyto(y, z, where=second)

    return pairwise(op, apply)


@operator(
    BuiltinOperator.STABLEHLO_AND, max_version=1, infer=broadcast_inputs, types=(*_WHOLE, TensorType.BOOL)
)
def bitwise_and(op: OpContext) -> Kernel:
    """STABLEHLO_AND of the bits of two integers, or of two flags."""
    kind = op.require(*_WHOLE, TensorType.BOOL)
    op.require(kind, i=1)
    return pairwise(op, np.bitwise_and)


@operator(BuiltinOperator.STABLEHLO_SHIFT_LEFT, max_version=1, infer=broadcast_inputs, types=_WHOLE)
def shift_left(op: OpContext) -> Kernel:
    """STABLEHLO_SHIFT_LEFT: x << z."""
    kind = op.require(*_WHOLE)
    op.require(kind, i=1)
    return pairwise(op, np.left_shift)
