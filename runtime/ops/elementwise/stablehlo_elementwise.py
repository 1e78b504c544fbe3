"""STABLEHLO_ADD, MULTIPLY, MAXIMUM, MINIMUM, AND, SHIFT_LEFT, REMAINDER and CLAMP.

LiteRT's interpreter runs the last two on GPUs only; they do as the StableHLO specification says.
"""

from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Array, Kernel, OpContext, Shape, operator
from runtime.ops.support.blocks import broadcast_blocks, pairwise
from runtime.ops.support.shapes import broadcast_inputs

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
_SIGNED = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
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


@operator(BuiltinOperator.STABLEHLO_REMAINDER, max_version=1, infer=broadcast_inputs, types=_SIGNED)
def remainder(op: OpContext) -> Kernel:
    """STABLEHLO_REMAINDER: what x is beyond a multiple of z, with the sign of x.

    Division of integers by zero, which the specification leaves open, raises `ShapeError` at run time.
    """
    kind = op.require(*_SIGNED)
    op.require(kind, i=1)
    divisor = op.read(1)
    divide = pairwise(op, np.fmod)

    def run() -> None:
        if kind is not TensorType.FLOAT32 and not divisor.all():
            raise op.error("division by zero")
        divide()

    return run


def _clamped_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of the operand; each bound has it too, or is one number."""
    shape = op.input(1).shape
    for i in (0, 2):
        if op.input(i).shape not in ((), shape):
            raise op.error(f"a bound of shape {list(op.input(i).shape)} for an operand of {list(shape)}")
    return (shape,)


@operator(BuiltinOperator.STABLEHLO_CLAMP, max_version=1, infer=_clamped_shape, types=_SIGNED)
def clamp(op: OpContext) -> Kernel:
    """STABLEHLO_CLAMP of (low, x, high): the lesser of high and the greater of x and low; NaN stays NaN."""
    kind = op.require(*_SIGNED)
    op.require(kind, i=1)
    op.require(kind, i=2)
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1), op.read(2))

    def run() -> None:
        for y, low, x, high in pieces:
            np.maximum(low, x, out=y)
            np.minimum(high, y, out=y)

    return run
