"""Logic and bits: LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT; BITWISE_XOR, RIGHT_SHIFT."""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.blocks import pairs_of_one_type
from runtime.ops.support.shapes import broadcast_inputs, same_shape

_FLAGS = (TensorType.BOOL,)
_INTEGERS = (
    TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.UINT16, TensorType.INT32,
    TensorType.UINT32,
)  # fmt: skip


def _shifted_right(x: Array, z: Array, out: Array) -> None:
    np.right_shift(x, np.clip(z, 0, 8 * out.itemsize - 1), out=out)


_PAIRS: Mapping[Op, tuple[Callable[..., object], tuple[TensorType, ...]]] = {
    Op.LOGICAL_AND: (np.logical_and, _FLAGS),
    Op.LOGICAL_OR: (np.logical_or, _FLAGS),
    Op.BITWISE_XOR: (np.bitwise_xor, (*_INTEGERS, *_FLAGS)),
    Op.RIGHT_SHIFT: (_shifted_right, _INTEGERS),
}


def logical(op: OpContext) -> Kernel:
    """Join two operands, broadcast. RIGHT_SHIFT keeps the sign, and clamps z to 0 .. bits - 1 of the type."""
    return pairs_of_one_type(op, _PAIRS[op.operator.opcode][0])


for _opcode, (_, _types) in _PAIRS.items():
    operator(_opcode, infer=broadcast_inputs, types=_types)(logical)


@operator(Op.LOGICAL_NOT, infer=same_shape, types=_FLAGS)
def logical_not(op: OpContext) -> Kernel:
    """LOGICAL_NOT of a bool tensor."""
    x, y = op.read(0), op.write()
    return lambda: np.copyto(y, ~x)
