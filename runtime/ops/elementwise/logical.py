"""Logic and bits: LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT; BITWISE_XOR, RIGHT_SHIFT."""

from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Kernel, OpContext, operator
from runtime.ops.support.blocks import pairwise
from runtime.ops.support.shapes import broadcast_inputs, same_shape

_INTEGERS = (
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.UINT16,
    TensorType.INT32,
    TensorType.UINT32,
)
_LOGIC: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.LOGICAL_AND: np.logical_and,
    BuiltinOperator.LOGICAL_OR: np.logical_or,
}


@operator(*_LOGIC, max_version=1, infer=broadcast_inputs, types=(TensorType.BOOL,))
def logical(op: OpContext) -> Kernel:
    """LOGICAL_AND, LOGICAL_OR of two bool tensors, broadcast."""
    op.require(TensorType.BOOL)
    op.require(TensorType.BOOL, i=1)
    return pairwise(op, _LOGIC[op.operator.opcode])


@operator(BuiltinOperator.LOGICAL_NOT, max_version=1, infer=same_shape, types=(TensorType.BOOL,))
def logical_not(op: OpContext) -> Kernel:
    """LOGICAL_NOT of a bool tensor."""
    op.require(TensorType.BOOL)
    x, y = op.read(0), op.write()
    return lambda: np.copyto(y, ~x)


@operator(
    BuiltinOperator.BITWISE_XOR, max_version=1, infer=broadcast_inputs, types=(*_INTEGERS, TensorType.BOOL)
)
def bitwise_xor(op: OpContext) -> Kernel:
    """BITWISE_XOR of integers or flags, broadcast."""
    kind = op.require(*_INTEGERS, TensorType.BOOL)
    op.require(kind, i=1)
    return pairwise(op, np.bitwise_xor)


@operator(BuiltinOperator.RIGHT_SHIFT, max_version=1, infer=broadcast_inputs, types=_INTEGERS)
def right_shift(op: OpContext) -> Kernel:
    """RIGHT_SHIFT: x >> z with the sign kept, broadcast; z is clamped to 0 .. bits - 1 of the type."""
    kind = op.require(*_INTEGERS)
    op.require(kind, i=1)
    most = 8 * op.write().itemsize - 1
    return pairwise(op, lambda x, z, y: np.right_shift(x, np.clip(z, 0, most), out=y))
