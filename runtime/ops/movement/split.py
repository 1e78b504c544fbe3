"""Parts of a tensor along an axis: SPLIT, SPLIT_V and UNPACK."""

from itertools import accumulate

import numpy as np

from runtime.ops.movement.copies import copies
from runtime.ops.support import MOVABLE, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.shapes import axis_index, stated_axis


def split_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of `num_splits` equal parts along the axis, which is input 0."""
    shape, axis = op.input(1).shape, stated_axis(op, 0, len(op.input(1).shape))
    parts: int = op.option("num_splits")
    if parts != len(op.outputs) or parts < 1 or shape[axis] % parts:
        raise op.error(f"axis {axis} of {list(shape)} does not split into {parts} parts")
    return ((*shape[:axis], shape[axis] // parts, *shape[axis + 1 :]),) * parts


@operator(Op.SPLIT, max_version=5, infer=split_shape, types=MOVABLE, data=1)
def split(op: OpContext) -> Kernel:
    """SPLIT: equal parts of input 1."""
    op.require_same_type(1)
    parts = np.split(op.read(1), len(op.outputs), axis=stated_axis(op, 0, len(op.input(1).shape)))
    return copies([(op.write(i), part) for i, part in enumerate(parts)])


def _sizes(op: OpContext, size: int) -> tuple[int, ...]:
    """Return the sizes in input 1, the one -1 resolved."""
    sizes = op.integers(1, "size_splits")
    known = sum(s for s in sizes if s >= 0)
    if min(sizes, default=0) < -1 or sizes.count(-1) > 1:
        raise op.error(f"sizes {list(sizes)} have more than one unknown part")
    resolved = tuple(size - known if s == -1 else s for s in sizes)
    if sum(resolved) != size or min(resolved, default=0) < 0 or len(resolved) != len(op.outputs):
        raise op.error(f"sizes {list(sizes)} do not split {size} into {len(op.outputs)} parts")
    return resolved


def split_v_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shapes of parts of the sizes in input 1 along the axis in input 2; a -1 is the rest."""
    shape, axis = op.input(0).shape, stated_axis(op, 2, len(op.input().shape))
    return tuple((*shape[:axis], s, *shape[axis + 1 :]) for s in _sizes(op, shape[axis]))


@operator(Op.SPLIT_V, max_version=3, infer=split_v_shape, types=MOVABLE)
def split_v(op: OpContext) -> Kernel:
    """SPLIT_V: parts of input 0 of the sizes in input 1."""
    op.require_same_type(0)
    x, axis = op.read(0), stated_axis(op, 2, len(op.input().shape))
    stops = list(accumulate(_sizes(op, x.shape[axis])))
    return copies([(op.write(i), part) for i, part in enumerate(np.split(x, stops[:-1], axis=axis))])


def unpack_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return, for each entry of the axis, the input's shape without the axis."""
    shape = op.input().shape
    axis = axis_index(op, op.option("axis"), len(shape))
    if shape[axis] != len(op.outputs) or op.option("num") != len(op.outputs):
        raise op.error(f"axis {axis} of {list(shape)} does not unpack into {len(op.outputs)} outputs")
    return ((*shape[:axis], *shape[axis + 1 :]),) * len(op.outputs)


@operator(Op.UNPACK, max_version=6, infer=unpack_shape, types=MOVABLE)
def unpack(op: OpContext) -> Kernel:
    """UNPACK: the entries of an axis, one output for each."""
    op.require_same_type(0)
    x = op.read(0)
    entries = np.moveaxis(x, axis_index(op, op.option("axis"), x.ndim), 0)
    # With `...` even an entry of a list is a view, not a scalar.
    return copies([(op.write(i), entries[i, ...]) for i in range(len(op.outputs))])
