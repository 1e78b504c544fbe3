"""FLOOR, CEIL, ROUND and SIGN, element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.blocks import flat_blocks
from runtime.ops.shapes import same_shape
from runtime.ops.spec import Kernel, OpContext, operator

_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.FLOOR: np.floor,
    BuiltinOperator.CEIL: np.ceil,
    BuiltinOperator.ROUND: np.rint,
    BuiltinOperator.SIGN: np.sign,
}


@operator(*_UFUNCS, max_version=2, infer=same_shape, types=(TensorType.FLOAT32,), note="SIGN float64 too")
def rounded(op: OpContext) -> Kernel:
    """ROUND takes ties to the even neighbour."""
    more = (TensorType.FLOAT64,) if op.operator.opcode is BuiltinOperator.SIGN else ()
    op.require(TensorType.FLOAT32, *more)
    op.require_same_type(0)
    ufunc = _UFUNCS[op.operator.opcode]
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            ufunc(x, out=y)

    return run
