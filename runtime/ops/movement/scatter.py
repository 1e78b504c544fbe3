"""Elements put where indices say: SCATTER_ND (duplicates add up) and SPARSE_TO_DENSE."""

import numpy as np

from runtime.ops.movement.gather import flat_positions
from runtime.ops.support import (
    INDICES,
    MOVABLE,
    REAL_NUMBERS,
    Kernel,
    Op,
    OpContext,
    Shape,
    TensorType,
    operator,
)
from runtime.ops.support.shapes import stated_shape


def scatter_nd_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape in input 2; the updates' shape must be what the index vectors leave of it."""
    shape, indices, updates = stated_shape(op, 2), op.input(0).shape, op.input(1).shape
    if not indices or indices[-1] > len(shape) or updates != (*indices[:-1], *shape[indices[-1] :]):
        raise op.error(f"indices {list(indices)} and updates {list(updates)} for shape {list(shape)}")
    return (shape,)


@operator(Op.SCATTER_ND, infer=scatter_nd_shape, types=(*REAL_NUMBERS, TensorType.BOOL), data=1)
def scatter_nd(op: OpContext) -> Kernel:
    """SCATTER_ND: zeros with the updates added in their order; integers wrap.

    An index outside the shape raises `ShapeError` at run time.
    """
    op.require(*INDICES, i=0)
    op.require_same_type(1)
    indices, updates, y = op.read(0), op.read(1), op.write()
    depth = indices.shape[-1]
    rest = y.shape[depth:]
    rows, parts = y.reshape((-1, *rest)), updates.reshape((-1, *rest))

    def run() -> None:
        y.fill(0)
        # Not `rows[...] += parts`, which adds only one of the updates to a place.
        np.add.at(rows, flat_positions(op, indices, y.shape[:depth]), parts)

    return run


def sparse_to_dense_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape in input 1."""
    shape, indices, values = stated_shape(op, 1), op.input(0).shape, op.input(2).shape
    depth = indices[1] if len(indices) == 2 else 1
    count = indices[0] if indices else 1
    if len(indices) > 2 or depth != len(shape) or values not in ((), (count,)):
        raise op.error(f"indices {list(indices)} and values {list(values)} for shape {list(shape)}")
    return (shape,)


@operator(Op.SPARSE_TO_DENSE, max_version=3, infer=sparse_to_dense_shape, types=MOVABLE, data=2)
def sparse_to_dense(op: OpContext) -> Kernel:
    """SPARSE_TO_DENSE: the default of input 3, with a value at each index, or one value at all of them.

    Of equal indices the last counts.
    """
    op.require(*INDICES, i=0)
    op.require_same_type(2, 3)
    indices, values, default, y = op.read(0), op.read(2).reshape(-1), op.read(3).reshape(-1)[:1], op.write()
    flat = y.reshape(-1)

    def run() -> None:
        np.copyto(y, default)
        flat[flat_positions(op, indices, y.shape)] = values

    return run
