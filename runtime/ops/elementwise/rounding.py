"""FLOOR, CEIL, ROUND and SIGN, element by element."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise.unary import each
from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.registry import operator
from runtime.ops.support.shapes import same_shape

_SINGLE = (TensorType.FLOAT32,)


@operator(BuiltinOperator.CEIL, BuiltinOperator.ROUND, max_version=1, infer=same_shape, types=_SINGLE)
def rounded(op: OpContext) -> Kernel:
    """ROUND takes ties to the even neighbour."""
    return each(op, np.ceil if op.operator.opcode is BuiltinOperator.CEIL else np.rint)


@operator(BuiltinOperator.FLOOR, max_version=2, infer=same_shape, types=(*_SINGLE, TensorType.FLOAT16))
def floor(op: OpContext) -> Kernel:
    """The next integer below."""
    return each(op, np.floor)


@operator(
    BuiltinOperator.SIGN,
    max_version=2,
    infer=same_shape,
    types=(*_SINGLE, TensorType.FLOAT64, TensorType.INT32),
)
def sign(op: OpContext) -> Kernel:
    """-1, 0 or 1."""
    return each(op, np.sign)
