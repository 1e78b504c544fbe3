"""Operators that change the shape and keep the elements: RESHAPE, SQUEEZE, EXPAND_DIMS; and SHAPE."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.shapes import axis_index, reshaped
from runtime.ops.spec import Kernel, OpContext, Shape, operator


def reshape_shape(op: OpContext) -> tuple[Shape, ...]:
    """The shape of input 1, or the option; a lone 0 is the old notation for a scalar (`reshape.cc`)."""
    shape = op.optional(1)
    if shape is not None and shape.type is TensorType.INT32 and len(shape.shape) == 1:
        target = op.integers(1, "shape")
    else:
        target = tuple(op.option("new_shape"))
        target = () if target == (0,) else target
    return (reshaped(op, op.input().elements, target),)


def squeeze_shape(op: OpContext) -> tuple[Shape, ...]:
    """Without the listed dimensions of size 1, or without all of them."""
    shape, listed = op.input().shape, op.option("squeeze_dims")
    axes = {axis_index(op, a, len(shape)) for a in listed}
    axes = axes or {i for i, d in enumerate(shape) if d == 1}
    if any(shape[a] != 1 for a in axes):
        raise op.error(f"squeeze_dims {list(listed)} of shape {list(shape)} are not all 1")
    return (tuple(d for i, d in enumerate(shape) if i not in axes),)


def expand_dims_shape(op: OpContext) -> tuple[Shape, ...]:
    """With a 1 before the axis."""
    shape = op.input().shape
    (axis,) = op.integers(1, "axis") or (0,)
    at = axis_index(op, axis, len(shape) + 1)
    return ((*shape[:at], 1, *shape[at:]),)


def _copy(op: OpContext) -> Kernel:
    op.require_same_type(0)
    x, y = op.read(0).reshape(-1), op.write().reshape(-1)

    def run() -> None:
        np.copyto(y, x)

    return run


@operator(BuiltinOperator.RESHAPE, max_version=1, infer=reshape_shape)
def reshape(op: OpContext) -> Kernel:
    """A copy under another shape."""
    return _copy(op)


@operator(BuiltinOperator.SQUEEZE, max_version=2, infer=squeeze_shape)
def squeeze(op: OpContext) -> Kernel:
    """A copy without dimensions of size 1."""
    return _copy(op)


@operator(BuiltinOperator.EXPAND_DIMS, max_version=1, infer=expand_dims_shape)
def expand_dims(op: OpContext) -> Kernel:
    """A copy with one more dimension of size 1."""
    return _copy(op)


def shape_shape(op: OpContext) -> tuple[Shape, ...]:
    """[rank]."""
    return ((len(op.input().shape),),)


@operator(BuiltinOperator.SHAPE, max_version=1, infer=shape_shape, shape_only=True)
def shape(op: OpContext) -> Kernel:
    """The input's dimensions; known while planning, so it is folded."""
    value, y = op.input().shape, op.write()

    def run() -> None:
        y[:] = value

    return run
