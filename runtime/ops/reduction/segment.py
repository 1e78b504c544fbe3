"""Rows joined by their segment: SEGMENT_SUM and UNSORTED_SEGMENT_*."""

import numpy as np

from runtime.ops.support import INDICES, REAL_NUMBERS, Kernel, Op, OpContext, Shape, TensorType, operator


def segment_sum_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return as many rows as segments; their ids start at 0 and grow by at most 1 (`segment_sum.cc`)."""
    op.require(TensorType.INT32, i=1)
    shape, ids = op.input().shape, op.constant(1, "segment ids")
    steps = np.diff(ids, prepend=-1) if ids.ndim == 1 else np.empty(0)
    sorted_up = ids.ndim == 1 and ids.shape == shape[:1] and ((steps == 0) | (steps == 1)).all()
    if not sorted_up or (ids.size and ids[0] != 0):
        raise op.error(f"segment ids of shape {list(ids.shape)} are not sorted from 0 for {list(shape)}")
    return ((int(ids[-1]) + 1 if ids.size else 0, *shape[1:]),)


@operator(Op.SEGMENT_SUM, infer=segment_sum_shape, types=REAL_NUMBERS)
def segment_sum(op: OpContext) -> Kernel:
    """SEGMENT_SUM: sums of the rows of each segment, added in their order."""
    op.require_same_type(0)
    x, ids, y = op.read(0), op.read(1), op.write()

    def run() -> None:
        y.fill(0)
        np.add.at(y, ids, x)

    return run


def unsorted_segment_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the data's shape with `num_segments` rows in place of the axes of the ids."""
    op.require(*INDICES, i=1)
    op.require(*INDICES, i=2)
    shape, ids, counts = op.input().shape, op.input(1).shape, op.integers(2, "number of segments")
    if shape[: len(ids)] != ids or len(counts) != 1 or counts[0] < 0:
        raise op.error(f"ids of {list(ids)}, {list(counts)} segments for shape {list(shape)}")
    return ((counts[0], *shape[len(ids) :]),)


@operator(
    Op.UNSORTED_SEGMENT_SUM,
    Op.UNSORTED_SEGMENT_PROD,
    Op.UNSORTED_SEGMENT_MAX,
    Op.UNSORTED_SEGMENT_MIN,
    infer=unsorted_segment_shape,
    types=REAL_NUMBERS,
)
def unsorted_segment(op: OpContext) -> Kernel:
    """UNSORTED_SEGMENT_SUM, _PROD, _MAX, _MIN: reduce the rows of equal id.

    Rows of negative id are left out; an empty segment is the operation's identity. An id beyond the segments
    raises `ShapeError` at run time.
    """
    op.require_same_type(0)
    x, ids, y = op.read(0), op.read(1), op.write()
    limits = np.finfo(y.dtype) if y.dtype.kind == "f" else np.iinfo(y.dtype)
    join, identity = {
        Op.UNSORTED_SEGMENT_SUM: (np.add, 0),
        Op.UNSORTED_SEGMENT_PROD: (np.multiply, 1),
        Op.UNSORTED_SEGMENT_MAX: (np.maximum, limits.min),
        Op.UNSORTED_SEGMENT_MIN: (np.minimum, limits.max),
    }[op.operator.opcode]
    rows, flat = x.reshape((ids.size, *y.shape[1:])), ids.reshape(-1)

    def run() -> None:
        if flat.size and flat.max() >= y.shape[0]:
            raise op.error(f"segment {flat.max()} of {y.shape[0]}")
        kept = flat >= 0
        y.fill(identity)
        # Plain indexing would keep one row alone of those with equal ids.
        join.at(y, flat[kept], rows[kept])

    return run
