"""ARG_MAX and ARG_MIN: the first index of the extremum along an axis."""

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import stated_axis

_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)


def arg_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape without the axis."""
    axis, shape = stated_axis(op, 1, len(op.input().shape)), op.input().shape
    return ((*shape[:axis], *shape[axis + 1 :]),)


@operator(Op.ARG_MAX, Op.ARG_MIN, max_version=3, infer=arg_shape, types=_TYPES)
def arg_extreme(op: OpContext) -> Kernel:
    """ARG_MAX, ARG_MIN: indices of type int32 or int64; of equal values the first counts."""
    x, y, axis = op.read(0), op.write(), stated_axis(op, 1, len(op.input().shape))
    find = np.argmax if op.operator.opcode is Op.ARG_MAX else np.argmin
    if not x.shape[axis]:
        raise op.error("the axis is empty")
    if x.dtype.kind == "f":
        return _of_floats(x, y, axis, largest=find is np.argmax)
    return lambda: np.copyto(y, find(x, axis=axis), casting="unsafe")


def _of_floats(x: Array, y: Array, axis: int, *, largest: bool) -> Kernel:
    """Return the kernel of floats, where a NaN is never the extremum; numpy would return the first NaN."""
    find, never = (np.argmax, np.float32(-np.inf)) if largest else (np.argmin, np.float32(np.inf))

    def run() -> None:
        blank = np.isnan(x)
        # Without a NaN, which is usual, x is not copied.
        np.copyto(y, find(np.where(blank, never, x) if blank.any() else x, axis=axis), casting="unsafe")

    return run
