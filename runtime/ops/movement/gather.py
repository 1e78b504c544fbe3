"""Elements chosen by indices: GATHER along an axis, GATHER_ND by index vectors."""

import numpy as np

from runtime.ops.support import MOVABLE, NARROW_INDICES, Array, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.shapes import axis_index


def _axes(op: OpContext) -> tuple[int, int]:
    """Return (axis, batch dimensions), both counted from the front."""
    shape, indices = op.input().shape, op.input(1).shape
    axis = axis_index(op, op.option("axis"), len(shape))
    batch: int = op.option("batch_dims")
    batch += len(indices) if batch < 0 else 0
    if not 0 <= batch <= min(axis, len(indices)) or shape[:batch] != indices[:batch]:
        raise op.error(f"{batch} batch dimensions of {list(shape)} and {list(indices)}, axis {axis}")
    return axis, batch


def gather_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape with the indices' shape, without the batch, in place of the axis."""
    shape, (axis, batch) = op.input().shape, _axes(op)
    return ((*shape[:axis], *op.input(1).shape[batch:], *shape[axis + 1 :]),)


def _check(op: OpContext, positions: Array, size: int) -> None:
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        raise op.error(f"an index is outside the axis of {size}")


@operator(Op.GATHER, max_version=8, infer=gather_shape, types=MOVABLE, note="indices int16, int32, int64")
def gather(op: OpContext) -> Kernel:
    """GATHER: slices at the indices along an axis; a negative or too large index raises `ShapeError`."""
    op.require_same_type(0)
    op.require(*NARROW_INDICES, i=1)
    x, indices, y, (axis, batch) = op.read(0), op.read(1), op.write(), _axes(op)
    positions = np.empty(indices.shape, np.intp)
    size = x.shape[axis]

    # `take` with an output buffers it unless the mode is "clip"; the check before leaves nothing to clip.
    def run() -> None:
        np.copyto(positions, indices)
        _check(op, positions, size)
        np.take(x, positions, axis=axis, out=y, mode="clip")

    def run_batches() -> None:
        np.copyto(positions, indices)
        _check(op, positions, size)
        for b in np.ndindex(indices.shape[:batch]):
            y[b] = np.take(x[b], positions[b], axis=axis - batch, mode="clip")

    return run_batches if batch else run


def gather_nd_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the indices' shape with the last axis, the index vectors, replaced by the shape of a slice."""
    shape, indices = op.input().shape, op.input(1).shape
    if not indices or indices[-1] > len(shape):
        raise op.error(f"index vectors of {list(indices)} for shape {list(shape)}")
    return ((*indices[:-1], *shape[indices[-1] :]),)


@operator(
    Op.GATHER_ND, max_version=6, infer=gather_nd_shape, types=MOVABLE, note="indices int16, int32, int64"
)
def gather_nd(op: OpContext) -> Kernel:
    """GATHER_ND: slices at the positions of the index vectors; one outside the input raises `ShapeError`."""
    op.require_same_type(0)
    op.require(*NARROW_INDICES, i=1)
    x, indices, y = op.read(0), op.read(1), op.write()
    depth = indices.shape[-1]
    # numpy cannot resolve -1 for an array without elements.
    rows = x.reshape((-1, *x.shape[depth:])) if x.size else x.reshape((0, *x.shape[depth:]))
    out = y.reshape((-1, *x.shape[depth:]))
    return lambda: np.take(rows, flat_positions(op, indices, x.shape[:depth]), axis=0, out=out, mode="clip")


def flat_positions(op: OpContext, indices: Array, sizes: Shape) -> Array:
    """Return row-major positions of index vectors in an array of shape `sizes`; int64 [vectors].

    Raises `ShapeError` for an index outside.
    """
    vectors = indices.reshape(-1, len(sizes)).astype(np.int64)
    if ((vectors < 0) | (vectors >= np.array(sizes, np.int64))).any():
        raise op.error(f"an index is outside {list(sizes)}")
    strides = np.cumprod((1, *sizes[:0:-1]), dtype=np.int64)[::-1] if sizes else np.empty(0, np.int64)
    return np.asarray(vectors @ strides)
