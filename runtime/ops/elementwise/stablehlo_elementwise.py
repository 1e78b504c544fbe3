"""STABLEHLO_ADD, MULTIPLY, MAXIMUM, MINIMUM, AND, SHIFT_LEFT, REMAINDER and CLAMP.

LiteRT's interpreter runs the last two on GPUs only; they do as the StableHLO specification says.
"""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.ops.elementwise.arithmetic import by_no_zero, extremum
from runtime.ops.support import REAL_NUMBERS, Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.blocks import broadcast_blocks, over, pairs_of_one_type
from runtime.ops.support.shapes import broadcast_inputs

_NUMBERS = (TensorType.FLOAT16, TensorType.BOOL, *REAL_NUMBERS)
_SIGNED = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
_WHOLE = (TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64)

_PAIRS: Mapping[Op, tuple[Callable[..., object], tuple[TensorType, ...]]] = {
    Op.STABLEHLO_ADD: (np.add, _NUMBERS),
    Op.STABLEHLO_MULTIPLY: (np.multiply, _NUMBERS),
    Op.STABLEHLO_MAXIMUM: (lambda x, z, out: extremum(np.greater, z, x, out), _NUMBERS),
    Op.STABLEHLO_MINIMUM: (lambda x, z, out: extremum(np.less, z, x, out), _NUMBERS),
    Op.STABLEHLO_AND: (np.bitwise_and, (*_WHOLE, TensorType.BOOL)),
    Op.STABLEHLO_SHIFT_LEFT: (np.left_shift, _WHOLE),
}


def pair(op: OpContext) -> Kernel:
    """Return the kernel of an operator of `_PAIRS`; integers wrap.

    STABLEHLO_MAXIMUM and STABLEHLO_MINIMUM give the first operand where either is NaN, MAXIMUM and MINIMUM
    the second one: LiteRT's two kernels compare in opposite order.
    """
    return pairs_of_one_type(op, _PAIRS[op.operator.opcode][0])


for _opcode, (_, _types) in _PAIRS.items():
    operator(_opcode, infer=broadcast_inputs, types=_types)(pair)


@operator(Op.STABLEHLO_REMAINDER, infer=broadcast_inputs, types=_SIGNED)
def remainder(op: OpContext) -> Kernel:
    """STABLEHLO_REMAINDER: what x is beyond a multiple of z, with the sign of x.

    Division of integers by zero, which the specification leaves open, raises `ShapeError` at run time.
    """
    return by_no_zero(op, pairs_of_one_type(op, np.fmod), allowed=op.input().type is TensorType.FLOAT32)


def _clamped_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of the operand; each bound has it too, or is one number."""
    shape = op.input(1).shape
    for i in (0, 2):
        if op.input(i).shape not in ((), shape):
            raise op.error(f"a bound of shape {list(op.input(i).shape)} for an operand of {list(shape)}")
    return (shape,)


@operator(Op.STABLEHLO_CLAMP, infer=_clamped_shape, types=_SIGNED)
def clamp(op: OpContext) -> Kernel:
    """STABLEHLO_CLAMP of (low, x, high): the lesser of high and the greater of x and low; NaN stays NaN."""
    op.require_operands(1, 2)
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1), op.read(2))

    def apply(y: Array, low: Array, x: Array, high: Array) -> None:
        np.maximum(low, x, out=y)
        np.minimum(high, y, out=y)

    return over(pieces, apply)
