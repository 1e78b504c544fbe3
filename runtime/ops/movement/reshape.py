"""Operators that change the shape and keep the elements: RESHAPE, SQUEEZE, EXPAND_DIMS, BITCAST, DENSIFY."""

from collections.abc import Mapping

import numpy as np

from runtime.ops.movement.copies import copy
from runtime.ops.support import MOVABLE, REAL_NUMBERS, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.registry import Infer
from runtime.ops.support.shapes import axis_index, reshaped, same_shape, stated_axis


def reshape_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape in input 1, or the option's, where a lone 0 means a scalar (`reshape.cc`)."""
    shape = op.optional(1)
    # A second input of another type or rank is ignored, as in LiteRT.
    if shape is not None and shape.type is TensorType.INT32 and len(shape.shape) == 1:
        target = op.integers(1, "shape")
    else:
        target = tuple(op.option("new_shape"))
        target = () if target == (0,) else target
    return (reshaped(op, op.input().elements, target),)


def squeeze_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape without the listed dimensions of size 1, or without all such dimensions."""
    shape, listed = op.input().shape, op.option("squeeze_dims")
    axes = {axis_index(op, a, len(shape)) for a in listed}
    axes = axes or {i for i, d in enumerate(shape) if d == 1}
    if any(shape[a] != 1 for a in axes):
        raise op.error(f"squeeze_dims {list(listed)} of shape {list(shape)} are not all 1")
    return (tuple(d for i, d in enumerate(shape) if i not in axes),)


def expand_dims_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape with a new dimension of 1 at the axis."""
    shape = op.input().shape
    at = stated_axis(op, 1, len(shape) + 1)
    return ((*shape[:at], 1, *shape[at:]),)


_SHAPES: Mapping[Op, tuple[Infer, int, tuple[TensorType, ...]]] = {
    Op.RESHAPE: (reshape_shape, 1, MOVABLE),
    Op.SQUEEZE: (squeeze_shape, 2, MOVABLE),
    Op.EXPAND_DIMS: (expand_dims_shape, 1, MOVABLE),
    Op.DENSIFY: (same_shape, 1, (TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT8)),
}
"""Operators that only copy: the new shape, the last version, the types."""


def kept(op: OpContext) -> Kernel:
    """Copy the elements under another shape. A sparse constant (DENSIFY) became dense when it was read."""
    op.require_same_type(0)
    return copy(op.write().reshape(-1), op.read(0).reshape(-1))


for _opcode, (_infer, _version, _types) in _SHAPES.items():
    operator(_opcode, max_version=_version, infer=_infer, types=_types)(kept)


def bitcast_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of the same bytes; wider elements use up the last dimension, narrower ones add one."""
    shape, source, target = op.input().shape, op.input().dtype, op.output().dtype
    if source is None or target is None or "O" in (source.kind, target.kind):
        raise op.unsupported(f"from {op.input().type.name} to {op.output().type.name}")
    if source.itemsize == target.itemsize:
        return (shape,)
    if source.itemsize > target.itemsize:
        return ((*shape, source.itemsize // target.itemsize),)
    if not shape or shape[-1] * source.itemsize != target.itemsize:
        raise op.error(f"the last dimension of {list(shape)} does not fill {op.output().type.name}")
    return (shape[:-1],)


@operator(Op.BITCAST, infer=bitcast_shape, types=REAL_NUMBERS)
def bitcast(op: OpContext) -> Kernel:
    """BITCAST: the input's bytes, read as another type of the same or of another width."""
    return copy(op.write().reshape(-1).view(np.uint8), op.read(0).reshape(-1).view(np.uint8))
