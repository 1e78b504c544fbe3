"""SLICE and STRIDED_SLICE: a view of the input, copied; DYNAMIC_UPDATE_SLICE: a box of it replaced."""

from dataclasses import dataclass

import numpy as np

from runtime.ops.movement.copies import copy
from runtime.ops.support import (
    INDICES,
    MOVABLE,
    NARROW_INDICES,
    Array,
    Kernel,
    Op,
    OpContext,
    Shape,
    operator,
)


def _box(op: OpContext, begin: tuple[int, ...], size: tuple[int, ...]) -> tuple[slice, ...]:
    shape = op.input().shape
    if len(begin) != len(shape) or len(size) != len(shape):
        raise op.error(f"begin {list(begin)} and size {list(size)} for shape {list(shape)}")
    bounds = []
    for dim, start, count in zip(shape, begin, size, strict=True):
        stop = dim if count == -1 else start + count
        if not 0 <= start <= stop <= dim:
            raise op.error(f"begin {list(begin)}, size {list(size)} leave shape {list(shape)}")
        bounds.append(slice(start, stop))
    return tuple(bounds)


def _begin_is_late(op: OpContext, size: tuple[int, ...]) -> bool:
    return op.input(1).constant is None and min(size, default=0) >= 0


def slice_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the sizes; -1 means up to the end, and only then the shape depends on where the box begins."""
    op.require(*INDICES, i=1)
    op.require(*INDICES, i=2)
    size = op.integers(2, "size")
    if _begin_is_late(op, size):
        _box(op, (0,) * len(op.input().shape), size)
        return (size,)
    return (tuple(s.stop - s.start for s in _box(op, op.integers(1, "begin"), size)),)


@operator(Op.SLICE, max_version=8, infer=slice_shape, types=MOVABLE, note="begin may be computed")
def slice_tensor(op: OpContext) -> Kernel:
    """SLICE: a box of the input. One that leaves the input raises `ShapeError`, at run time if it must."""
    op.require_same_type(0)
    x, y, size = op.read(0), op.write(), op.integers(2, "size")
    if not _begin_is_late(op, size):
        return copy(y, x[_box(op, op.integers(1, "begin"), size)])
    begin = op.read(1)
    return lambda: np.copyto(y, x[_box(op, tuple(begin.tolist()), size)])


@dataclass(frozen=True, slots=True)
class _Masks:
    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink: int
    offset: bool


def _index(op: OpContext) -> tuple[slice | int | None, ...]:
    """Return the numpy index of a STRIDED_SLICE, its masks resolved as `strided_slice.cc` does.

    Of an entry with several masks the ellipsis counts first, then the new axis, then shrinking.
    """
    for i in (1, 2, 3):
        op.require(*NARROW_INDICES, i=i)
    begin, end, strides = (op.integers(i, n) for i, n in ((1, "begin"), (2, "end"), (3, "strides")))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "offset")
    masks = _Masks(*(op.option(n) for n in names))
    if not len(begin) == len(end) == len(strides):
        raise op.error("begin, end and strides differ in length")
    shape = op.input().shape
    entries = len(begin)
    # Entries that use up an axis of the input; the ellipsis stands for what they leave.
    consumed = sum(1 for i in range(entries) if not (masks.ellipsis | masks.new_axis) >> i & 1)
    index: list[slice | int | None] = []
    axis = 0
    for i in range(entries):
        if masks.ellipsis >> i & 1:
            skipped = max(len(shape) - consumed, 0)
            index += [slice(None)] * skipped
            axis += skipped
        elif masks.new_axis >> i & 1:
            index.append(None)
        elif axis >= len(shape):
            raise op.error(f"{entries} entries index shape {list(shape)}")
        else:
            # With `offset` an end counts from its begin, which must be resolved before.
            first = begin[i] + shape[axis] if masks.offset and begin[i] < 0 else begin[i]
            stop = first + end[i] if masks.offset else end[i]
            index.append(_entry(op, masks, i, shape[axis], (first, stop, strides[i])))
            axis += 1
    return tuple(index)


def _entry(op: OpContext, masks: _Masks, i: int, dim: int, span: tuple[int, int, int]) -> slice | int:
    begin, end, stride = span
    if stride == 0:
        raise op.error("a stride of 0")
    if masks.shrink >> i & 1:
        position = begin + dim if begin < 0 else begin
        position = 0 if masks.begin >> i & 1 else position
        if not 0 <= position < dim:
            raise op.error(f"index {begin} is outside a dimension of {dim}")
        return position
    start = None if masks.begin >> i & 1 else begin
    stop = None if masks.end >> i & 1 else end
    # Python counts negative bounds from the end and clamps the rest, by the same rules as `strided_slice.cc`.
    return slice(start, stop, stride)


def _view(op: OpContext, x: Array) -> Array:
    # The ellipsis keeps the result a view, where numpy would give a scalar for an index of every axis.
    return x[(*_index(op), ...)]


def strided_slice_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of the index applied to a broadcast scalar, which needs no memory."""
    return (_view(op, np.broadcast_to(np.empty((), np.int8), op.input().shape)).shape,)


@operator(Op.STRIDED_SLICE, max_version=8, infer=strided_slice_shape, types=MOVABLE)
def strided_slice(op: OpContext) -> Kernel:
    """STRIDED_SLICE: begin, end and stride per axis, with all masks."""
    op.require_same_type(0)
    return copy(op.write(), _view(op, op.read(0)))


def dynamic_update_slice_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the operand's shape; the update must fit into it and have one start for each axis."""
    shape, update, starts = (op.input(i).shape for i in range(3))
    fits = len(update) == len(shape) and all(u <= d for u, d in zip(update, shape, strict=True))
    if not fits or starts != (len(shape),):
        raise op.error(f"an update of {list(update)} at {list(starts)} starts for shape {list(shape)}")
    return (shape,)


@operator(Op.DYNAMIC_UPDATE_SLICE, max_version=6, infer=dynamic_update_slice_shape, types=MOVABLE)
def dynamic_update_slice(op: OpContext) -> Kernel:
    """DYNAMIC_UPDATE_SLICE: the operand with the update written over it.

    A start outside is moved so that the update fits, as in StableHLO: the way key-value caches are written.
    """
    op.require_same_type(0, 1)
    op.require(*INDICES, i=2)
    x, update, starts, y = op.read(0), op.read(1), op.read(2), op.write()
    room = [d - u for d, u in zip(x.shape, update.shape, strict=True)]

    def run() -> None:
        np.copyto(y, x)
        first = [min(max(s, 0), r) for s, r in zip(starts.tolist(), room, strict=True)]
        box = tuple(slice(f, f + u) for f, u in zip(first, update.shape, strict=True))
        np.copyto(y[box], update)

    return run
