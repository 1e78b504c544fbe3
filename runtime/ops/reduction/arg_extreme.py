"""ARG_MAX and ARG_MIN: the first index of the extremum along an axis."""

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Array, Kernel, OpContext, Shape, operator
from runtime.ops.support.shapes import axis_index

_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)


def _axis(op: OpContext) -> int:
    axes = op.integers(1, "axis")
    if len(axes) != 1:
        raise op.error(f"{len(axes)} axes where one is expected")
    return axis_index(op, axes[0], len(op.input().shape))


def arg_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape without the axis."""
    axis, shape = _axis(op), op.input().shape
    return ((*shape[:axis], *shape[axis + 1 :]),)


@operator(BuiltinOperator.ARG_MAX, BuiltinOperator.ARG_MIN, max_version=3, infer=arg_shape, types=_TYPES)
def arg_extreme(op: OpContext) -> Kernel:
    """ARG_MAX, ARG_MIN: indices of type int32 or int64; of equal values the first counts."""
    op.require(*_TYPES)
    x, y, axis = op.read(0), op.write(), _axis(op)
    find = np.argmax if op.operator.opcode is BuiltinOperator.ARG_MAX else np.argmin
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
        np.copyto(y, find(np.where(blank, never, x) if blank.any() else x, axis=axis), casting="unsafe")

    return run
