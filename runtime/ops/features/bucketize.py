"""BUCKETIZE: which interval a value lies in."""

import numpy as np

from runtime.ops.support import Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.shapes import same_shape

_TYPES = (TensorType.FLOAT32, TensorType.FLOAT64, TensorType.INT32, TensorType.INT64)


@operator(Op.BUCKETIZE, infer=same_shape, types=_TYPES)
def bucketize(op: OpContext) -> Kernel:
    """BUCKETIZE: the number of boundaries that are at most the value; integers compare in float32."""
    boundaries = np.array(op.option("boundaries"), np.float32)
    if (np.diff(boundaries) < 0).any():
        raise op.error("boundaries are not sorted")
    x, y = op.read(0), op.write()
    compared = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
    edges = boundaries.astype(compared)
    return lambda: np.copyto(y, np.searchsorted(edges, x.astype(compared), side="right"), casting="same_kind")
