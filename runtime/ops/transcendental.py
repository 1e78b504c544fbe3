"""LOG, SIN, COS and STABLEHLO_CBRT, element by element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.blocks import flat_blocks
from runtime.ops.shapes import same_shape
from runtime.ops.spec import Kernel, OpContext, operator

_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.LOG: np.log,
    BuiltinOperator.SIN: np.sin,
    BuiltinOperator.COS: np.cos,
    BuiltinOperator.STABLEHLO_CBRT: np.cbrt,
}


@operator(*_UFUNCS, max_version=2, infer=same_shape, types=(TensorType.FLOAT32,))
def transcendental(op: OpContext) -> Kernel:
    """In single precision; special values as in IEEE 754."""
    op.require(TensorType.FLOAT32)
    op.require_same_type(0)
    ufunc = _UFUNCS[op.operator.opcode]
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            ufunc(x, out=y)

    return run
