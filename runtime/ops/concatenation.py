"""Joining and splitting along an axis: CONCATENATION, PACK, SPLIT."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.ops.elementwise import require_equal_quantization
from runtime.ops.shapes import axis_index
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator


def _copies(pairs: list[tuple[Array, Array]]) -> Kernel:
    def run() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    return run


def concatenation_shape(op: OpContext) -> tuple[Shape, ...]:
    """Sizes add up along the axis, all others agree."""
    shapes = [op.input(i).shape for i in range(len(op.inputs))]
    axis = axis_index(op, op.option("axis"), len(shapes[0]) if shapes else 0)
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    if len(rest) > 1 or len({len(s) for s in shapes}) > 1:
        raise op.error(f"shapes {', '.join(str(list(s)) for s in shapes)} do not join along axis {axis}")
    return ((*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]),)


@operator(BuiltinOperator.CONCATENATION, max_version=7, infer=concatenation_shape)
def concatenation(op: OpContext) -> Kernel:
    """Inputs one behind the other; quantised ones need equal quantisation."""
    if op.option("fused_activation_function") is not ActivationFunctionType.NONE:
        raise op.unsupported("a fused activation")
    values = [op.input(i) for i in range(len(op.inputs))]
    op.require_same_type(*range(len(values)))
    if values[0].type in (TensorType.INT8, TensorType.UINT8, TensorType.INT16):
        require_equal_quantization(op, op.output(), *values)
    y = op.write()
    axis = axis_index(op, op.option("axis"), y.ndim)
    pairs, start = [], 0
    for i, value in enumerate(values):
        stop = start + value.shape[axis]
        pairs.append((y[(slice(None),) * axis + (slice(start, stop),)], op.read(i)))
        start = stop
    return _copies(pairs)


def pack_shape(op: OpContext) -> tuple[Shape, ...]:
    """A new axis of as many entries as inputs."""
    shapes = {op.input(i).shape for i in range(len(op.inputs))}
    if len(shapes) != 1 or op.option("values_count") != len(op.inputs):
        raise op.error(f"{len(op.inputs)} inputs of {len(shapes)} shapes do not stack")
    shape = shapes.pop()
    axis = axis_index(op, op.option("axis"), len(shape) + 1)
    return ((*shape[:axis], len(op.inputs), *shape[axis:]),)


@operator(BuiltinOperator.PACK, max_version=5, infer=pack_shape)
def pack(op: OpContext) -> Kernel:
    """Inputs stacked along a new axis."""
    op.require_same_type(*range(len(op.inputs)))
    y = op.write()
    stacked = np.moveaxis(y, axis_index(op, op.option("axis"), y.ndim), 0)
    return _copies([(stacked[i, ...], op.read(i)) for i in range(len(op.inputs))])


def _split_axis(op: OpContext) -> int:
    (axis,) = op.integers(0, "axis")
    return axis_index(op, axis, len(op.input(1).shape))


def split_shape(op: OpContext) -> tuple[Shape, ...]:
    """`num_splits` equal parts along the axis, which is input 0."""
    shape, axis = op.input(1).shape, _split_axis(op)
    parts: int = op.option("num_splits")
    if parts != len(op.outputs) or parts < 1 or shape[axis] % parts:
        raise op.error(f"axis {axis} of {list(shape)} does not split into {parts} parts")
    return ((*shape[:axis], shape[axis] // parts, *shape[axis + 1 :]),) * parts


@operator(BuiltinOperator.SPLIT, max_version=5, infer=split_shape)
def split(op: OpContext) -> Kernel:
    """Equal parts of input 1."""
    op.require_same_type(1)
    parts = np.split(op.read(1), len(op.outputs), axis=_split_axis(op))
    return _copies([(op.write(i), part) for i, part in enumerate(parts)])
