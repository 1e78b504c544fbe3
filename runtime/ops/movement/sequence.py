"""Elements in another order: REVERSE_V2, REVERSE_SEQUENCE, TOPK_V2."""

import numpy as np

from runtime.ops.movement.copies import copy
from runtime.ops.support import (
    INDICES,
    MOVABLE,
    NARROW_INDICES,
    REAL_NUMBERS,
    Kernel,
    Op,
    OpContext,
    Shape,
    operator,
)
from runtime.ops.support.shapes import axis_index, same_shape


@operator(Op.REVERSE_V2, max_version=4, infer=same_shape, types=MOVABLE)
def reverse(op: OpContext) -> Kernel:
    """REVERSE_V2: the input backwards along the axes in input 1."""
    op.require_same_type(0)
    x = op.read(0)
    axes = tuple(axis_index(op, a, x.ndim) for a in op.integers(1, "axes"))
    if len(set(axes)) != len(axes):
        raise op.error(f"axes {list(axes)} repeat")
    return copy(op.write(), np.flip(x, axes))


@operator(Op.REVERSE_SEQUENCE, infer=same_shape, types=MOVABLE)
def reverse_sequence(op: OpContext) -> Kernel:
    """REVERSE_SEQUENCE: the first `length` entries of each sequence backwards, the rest as they are.

    Lengths, one for each entry of the batch axis, may be computed at run time.
    """
    op.require_same_type(0)
    op.require(*INDICES, i=1)
    x, lengths, y = op.read(0), op.read(1), op.write()
    batch, sequence = (axis_index(op, op.option(n), x.ndim) for n in ("batch_dim", "seq_dim"))
    if batch == sequence or lengths.shape != (x.shape[batch],):
        raise op.error(f"lengths of {list(lengths.shape)} for axes {batch}, {sequence} of {list(x.shape)}")
    source, target = (np.moveaxis(a, (batch, sequence), (0, 1)) for a in (x, y))

    def run() -> None:
        np.copyto(y, x)
        for i, length in enumerate(lengths.tolist()):
            if not 0 <= length <= source.shape[1]:
                raise op.error(f"a sequence of {length} in an axis of {source.shape[1]}")
            target[i, :length] = source[i, :length][::-1]

    return run


def topk_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's shape with k as the last axis, once for the values and once for the indices."""
    op.require(*NARROW_INDICES, i=1)
    shape, ks = op.input().shape, op.integers(1, "k")
    if len(ks) != 1 or not shape or not 0 <= ks[0] <= shape[-1]:
        raise op.error(f"the first {list(ks)} of shape {list(shape)}")
    return ((*shape[:-1], ks[0]),) * 2


@operator(Op.TOPK_V2, max_version=3, infer=topk_shape, types=REAL_NUMBERS)
def topk(op: OpContext) -> Kernel:
    """TOPK_V2: the k largest of the last axis and their indices, the largest first.

    Of equal values the lower index comes first.
    """
    op.require_same_type(0)
    x, values, indices = op.read(0), op.write(0), op.write(1)
    k = values.shape[-1]

    def run() -> None:
        # numpy sorts ascending: reversed before and after, a stable sort keeps equal values in their order.
        backwards = np.argsort(x[..., ::-1], axis=-1, kind="stable")
        order = (x.shape[-1] - 1 - backwards)[..., ::-1][..., :k]
        np.copyto(indices, order, casting="same_kind")
        np.copyto(values, np.take_along_axis(x, order, axis=-1))

    return run
