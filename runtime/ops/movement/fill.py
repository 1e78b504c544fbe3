"""Tensors made from a few values: FILL, ZEROS_LIKE, RANGE, ONE_HOT, MATRIX_DIAG, MATRIX_SET_DIAG."""

import math

import numpy as np

from runtime.ops.movement.copies import copies, copy
from runtime.ops.support import INDICES, MOVABLE, PLAIN, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import same_shape

_RANGED = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)


def fill_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the dimensions in input 0."""
    op.require(*INDICES, i=0)
    dims = op.integers(0, "dims")
    if len(op.input(0).shape) != 1 or min(dims, default=0) < 0 or op.input(1).elements != 1:
        raise op.error(f"dims {list(dims)} filled with a value of shape {list(op.input(1).shape)}")
    return (dims,)


@operator(Op.FILL, max_version=5, infer=fill_shape, types=MOVABLE, data=1)
def fill(op: OpContext) -> Kernel:
    """FILL: one value everywhere."""
    op.require_same_type(1)
    # A view, not the value: a computed input has it only while running.
    return copy(op.write(), op.read(1).reshape(-1)[0:1])


@operator(Op.ZEROS_LIKE, infer=same_shape, shape_only=True, types=PLAIN)
def zeros_like(op: OpContext) -> Kernel:
    """ZEROS_LIKE: zeros in the shape of the input."""
    y = op.write()
    return copy(y, np.zeros(1, y.dtype))


def range_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [ceil((limit - start) / delta)]; floats divide in single precision (`range.cc`)."""
    op.require(*_RANGED)
    start, limit, delta = (
        op.constant(i, n).reshape(-1)[0] for i, n in enumerate(("start", "limit", "delta"))
    )
    if delta == 0 or not np.isfinite([start, limit, delta]).all():
        raise op.error(f"from {start} to {limit} in steps of {delta}")
    if (start > limit and delta > 0) or (start < limit and delta < 0):
        raise op.error(f"steps of {delta} do not lead from {start} to {limit}")
    if op.input().type is TensorType.FLOAT32:
        return ((math.ceil(abs((limit - start) / delta)),),)
    distance, step = abs(int(limit) - int(start)), abs(int(delta))
    return (((distance + step - 1) // step,),)


@operator(Op.RANGE, max_version=2, infer=range_shape, types=_RANGED)
def range_tensor(op: OpContext) -> Kernel:
    """RANGE: start, then repeated additions of delta, each rounded, as the loop of `range.cc` does."""
    op.require_same_type(0, 1, 2)
    start, delta, y = op.read(0), op.read(2), op.write()

    def run() -> None:
        y.fill(delta.reshape(-1)[0])
        y[:1] = start.reshape(-1)[0]
        np.add.accumulate(y, out=y)

    return run


def one_hot_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the indices' shape with a new axis of the depth in input 1."""
    shape, axis = op.input().shape, op.option("axis")
    (depth,) = op.integers(1, "depth") if op.input(1).elements == 1 else (-1,)
    at = len(shape) if axis == -1 else axis
    if depth < 0 or not 0 <= at <= len(shape):
        raise op.error(f"depth {depth} along axis {axis} for indices of shape {list(shape)}")
    return ((*shape[:at], depth, *shape[at:]),)


@operator(Op.ONE_HOT, infer=one_hot_shape, types=MOVABLE, data=2, note="indices int32, int64")
def one_hot(op: OpContext) -> Kernel:
    """ONE_HOT: input 2 where the new axis equals the index, else input 3.

    An index outside the depth, negative ones included, sets nothing.
    """
    op.require(*INDICES, i=0)
    op.require_same_type(2, 3)
    indices, on, off, y = op.read(0), op.read(2).reshape(-1), op.read(3).reshape(-1), op.write()
    axis = op.option("axis")
    last = np.moveaxis(y, indices.ndim if axis == -1 else axis, -1)
    classes = np.arange(last.shape[-1])

    def run() -> None:
        np.copyto(y, off[:1])
        np.copyto(last, on[:1], where=indices[..., None] == classes)

    return run


def matrix_diag_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape with the last axis repeated, a square. Raises `ShapeError` for a scalar."""
    shape = op.input().shape
    if not shape:
        raise op.error("a scalar has no diagonal")
    return ((*shape, shape[-1]),)


@operator(Op.MATRIX_DIAG, infer=matrix_diag_shape, types=PLAIN)
def matrix_diag(op: OpContext) -> Kernel:
    """MATRIX_DIAG: matrices with the input on their diagonal and zeros elsewhere."""
    op.require_same_type(0)
    y = op.write()
    # A writable view; the one of `np.diagonal` is read-only.
    diagonal = np.einsum("...ii->...i", y)
    return copies([(y, np.zeros(1, y.dtype)), (diagonal, op.read(0))])


def matrix_set_diag_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of the matrices; the diagonal must be as long as their shorter side."""
    shape, diagonal = op.input(0).shape, op.input(1).shape
    if len(shape) < 2 or diagonal != (*shape[:-2], min(shape[-2:])):
        raise op.error(f"a diagonal of {list(diagonal)} for matrices of {list(shape)}")
    return (shape,)


@operator(Op.MATRIX_SET_DIAG, infer=matrix_set_diag_shape, types=MOVABLE)
def matrix_set_diag(op: OpContext) -> Kernel:
    """MATRIX_SET_DIAG: the matrices of input 0 with the diagonals of input 1."""
    op.require_same_type(0, 1)
    y, diagonal = op.write(), op.read(1)
    size = diagonal.shape[-1]
    place = np.einsum("...ii->...i", y[..., :size, :size])
    return copies([(y, op.read(0)), (place, diagonal)])
