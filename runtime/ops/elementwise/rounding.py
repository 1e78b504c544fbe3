"""FLOOR, CEIL, ROUND and SIGN, element by element."""

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise.unary import each
from runtime.ops.support import Array, Kernel, OpContext, operator
from runtime.ops.support.shapes import same_shape

_SINGLE = (TensorType.FLOAT32,)


@operator(BuiltinOperator.CEIL, BuiltinOperator.ROUND, max_version=1, infer=same_shape, types=_SINGLE)
def rounded(op: OpContext) -> Kernel:
    """CEIL, and ROUND, which rounds ties to the even neighbour; float32."""
    return each(op, np.ceil if op.operator.opcode is BuiltinOperator.CEIL else _to_even)


def _to_even(x: Array, out: Array) -> None:
    """Round as LiteRT does: what is rounded up to zero becomes +0, only -0 itself stays -0."""
    np.rint(x, out=out)
    np.add(out, np.float32(0), out=out, where=x != out)


@operator(BuiltinOperator.FLOOR, max_version=2, infer=same_shape, types=(*_SINGLE, TensorType.FLOAT16))
def floor(op: OpContext) -> Kernel:
    """FLOOR: the greatest integer not above x."""
    return each(op, np.floor)


@operator(
    BuiltinOperator.SIGN,
    max_version=2,
    infer=same_shape,
    types=(*_SINGLE, TensorType.FLOAT64, TensorType.INT32),
)
def sign(op: OpContext) -> Kernel:
    """SIGN: -1, 0 or 1 of x's type."""
    return each(op, np.sign)
