"""CUMSUM: running sums along an axis."""

import numpy as np

from runtime.ops.support import Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.shapes import axis_index, same_shape

_TYPES = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)


@operator(Op.CUMSUM, infer=same_shape, types=_TYPES)
def cumsum(op: OpContext) -> Kernel:
    """CUMSUM: `exclusive` leaves each element out of its own sum; `reverse` sums from the end."""
    x, y = op.read(0), op.write()
    axis = axis_index(op, op.integers(1, "axis")[0], x.ndim)
    if op.option("reverse"):
        x, y = np.flip(x, axis), np.flip(y, axis)
    exclusive = bool(op.option("exclusive"))
    ahead = (slice(None),) * axis

    def run() -> None:
        if exclusive:
            y[(*ahead, slice(0, 1))] = 0
            np.cumsum(x[(*ahead, slice(None, -1))], axis=axis, out=y[(*ahead, slice(1, None))])
        else:
            np.cumsum(x, axis=axis, out=y)
        # LiteRT's sums start from +0, so that none is -0.
        np.add(y, 0, out=y)

    return run
