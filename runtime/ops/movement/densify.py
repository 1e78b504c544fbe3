"""DENSIFY: a sparse constant becomes dense. Constants are decoded on reading, so this only copies."""

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Kernel, OpContext, operator
from runtime.ops.support.shapes import same_shape


@operator(
    BuiltinOperator.DENSIFY,
    max_version=1,
    infer=same_shape,
    types=(TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT8),
)
def densify(op: OpContext) -> Kernel:
    """DENSIFY: a copy of input 0, which reading made dense."""
    op.require_same_type(0)
    x, y = op.read(0), op.write()

    def run() -> None:
        np.copyto(y, x)

    return run
