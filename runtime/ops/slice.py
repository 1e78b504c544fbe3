"""SLICE and STRIDED_SLICE: a view of the input, copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.shapes import require_rank
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator

_INTEGERS = (TensorType.INT32, TensorType.INT64)


def _copy(source: Array, target: Array) -> Kernel:
    def run() -> None:
        np.copyto(target, source)

    return run


def _bounds(op: OpContext) -> tuple[slice, ...]:
    op.require(*_INTEGERS, i=1)
    op.require(*_INTEGERS, i=2)
    shape, begin, size = op.input().shape, op.integers(1, "begin"), op.integers(2, "size")
    if len(begin) != len(shape) or len(size) != len(shape):
        raise op.error(f"begin {list(begin)} and size {list(size)} for shape {list(shape)}")
    bounds = []
    for dim, start, count in zip(shape, begin, size, strict=True):
        stop = dim if count == -1 else start + count
        if not 0 <= start <= stop <= dim:
            raise op.error(f"begin {list(begin)}, size {list(size)} leave shape {list(shape)}")
        bounds.append(slice(start, stop))
    return tuple(bounds)


def slice_shape(op: OpContext) -> tuple[Shape, ...]:
    """The sizes; -1 means up to the end."""
    return (tuple(s.stop - s.start for s in _bounds(op)),)


@operator(BuiltinOperator.SLICE, max_version=8, infer=slice_shape)
def slice_tensor(op: OpContext) -> Kernel:
    """A box of the input; any type that numpy has."""
    op.require_same_type(0)
    return _copy(op.read(0)[_bounds(op)], op.write())


@dataclass(frozen=True, slots=True)
class _Masks:
    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink: int
    offset: bool


def _index(op: OpContext) -> tuple[slice | int | None, ...]:
    """The numpy index of a STRIDED_SLICE, negative positions resolved as `strided_slice.cc` does."""
    op.require(TensorType.INT32, i=1)
    require_rank(op, 1, 1)
    begin, end, strides = (op.integers(i, n) for i, n in ((1, "begin"), (2, "end"), (3, "strides")))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "offset")
    masks = _Masks(*(op.option(n) for n in names))
    if not len(begin) == len(end) == len(strides):
        raise op.error("begin, end and strides differ in length")
    shape = op.input().shape
    entries = len(begin)
    consumed = sum(1 for i in range(entries) if not (masks.ellipsis | masks.new_axis) >> i & 1)
    index: list[slice | int | None] = []
    axis = 0
    for i in range(entries):
        if masks.ellipsis >> i & 1:
            skipped = len(shape) - consumed
            index += [slice(None)] * skipped
            axis += skipped
        elif masks.new_axis >> i & 1:
            index.append(None)
        elif axis >= len(shape):
            raise op.error(f"{entries} entries index shape {list(shape)}")
        else:
            stop = begin[i] + end[i] if masks.offset else end[i]
            index.append(_entry(op, masks, i, shape[axis], (begin[i], stop, strides[i])))
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
    return slice(start, stop, stride)


def _view(op: OpContext, x: Array) -> Array:
    return x[(*_index(op), ...)]


def strided_slice_shape(op: OpContext) -> tuple[Shape, ...]:
    """Resolved on a tensor without memory."""
    return (_view(op, np.broadcast_to(np.empty((), np.int8), op.input().shape)).shape,)


@operator(BuiltinOperator.STRIDED_SLICE, max_version=8, infer=strided_slice_shape)
def strided_slice(op: OpContext) -> Kernel:
    """Begin, end and stride per axis, with all masks; any type that numpy has."""
    op.require_same_type(0)
    return _copy(_view(op, op.read(0)), op.write())
