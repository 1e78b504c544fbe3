"""TRANSPOSE: a permuted copy."""

from runtime.ops.movement.copies import copy
from runtime.ops.support import MOVABLE, Kernel, Op, OpContext, Shape, operator


def _permutation(op: OpContext) -> Shape:
    rank = len(op.input().shape)
    axes = op.integers(1, "permutation")
    counted = tuple(a + rank if a < 0 else a for a in axes)
    if sorted(counted) != list(range(rank)):
        raise op.error(f"{list(axes)} is not a permutation of the axes of {list(op.input().shape)}")
    return counted


def transpose_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the permuted shape: output axis i is input axis perm[i], from the end where it is negative."""
    shape = op.input().shape
    return (tuple(shape[a] for a in _permutation(op)),)


@operator(Op.TRANSPOSE, max_version=9, infer=transpose_shape, types=MOVABLE)
def transpose(op: OpContext) -> Kernel:
    """TRANSPOSE: a permuted copy of any rank and any type that numpy has."""
    op.require_same_type(0)
    return copy(op.write(), op.read(0).transpose(_permutation(op)))
