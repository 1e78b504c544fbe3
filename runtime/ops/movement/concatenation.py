"""Joining along an axis: CONCATENATION and PACK."""

from itertools import accumulate

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.movement.copies import copies, require_same_scale
from runtime.ops.support import MOVABLE, Array, Kernel, Op, OpContext, Shape, TensorType, Value, operator
from runtime.ops.support.blocks import over
from runtime.ops.support.quantization import round_half_away
from runtime.ops.support.shapes import axis_index


def concatenation_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the inputs' shape with the sizes along the axis added up. Raises `ShapeError`."""
    shapes = [op.input(i).shape for i in range(len(op.inputs))]
    axis = axis_index(op, op.option("axis"), len(shapes[0]) if shapes else 0)
    rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
    if len(rest) > 1 or len({len(s) for s in shapes}) > 1:
        raise op.error(f"shapes {', '.join(str(list(s)) for s in shapes)} do not join along axis {axis}")
    return ((*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :]),)


@operator(
    Op.CONCATENATION,
    max_version=7,
    infer=concatenation_shape,
    types=MOVABLE,
    note="uint8 inputs are rescaled to the output's quantisation",
)
def concatenation(op: OpContext) -> Kernel:
    """CONCATENATION: the inputs one behind the other along the option's axis.

    int8 needs equal quantisation; uint8 is rescaled to the output's where it differs.
    """
    if op.option("fused_activation_function") is not ActivationFunctionType.NONE:
        raise op.unsupported("a fused activation")
    values = [op.input(i) for i in range(len(op.inputs))]
    op.require_same_type(*range(len(values)))
    if values[0].type is TensorType.INT8:
        require_same_scale(op, op.output(), *values)
    y = op.write()
    axis = axis_index(op, op.option("axis"), y.ndim)
    stops = list(accumulate(v.shape[axis] for v in values))
    parts = [
        y[(slice(None),) * axis + (slice(stop - v.shape[axis], stop),)]
        for v, stop in zip(values, stops, strict=True)
    ]
    if values[0].type is TensorType.UINT8 and any(_scaled(v) != _scaled(op.output()) for v in values):
        return _rescaled(op, parts)
    return copies([(part, op.read(i)) for i, part in enumerate(parts)])


def _scaled(value: Value) -> tuple[float, int] | None:
    q = value.quantization
    return None if q is None or not q.scales else (q.scales[0], q.zero_points[0])


def _rescaled(op: OpContext, parts: list[Array]) -> Kernel:
    """Concatenate rescaled uint8 (`ConcatenationWithScaling` of `reference/concatenation.h`).

    The rule, in single precision with ties away from zero, is tabulated for the 256 values of each input.
    """
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    inverse = np.float32(1) / np.float32(out_scale)
    levels = np.arange(256, dtype=np.float32)
    pairs = []
    for i, part in enumerate(parts):
        scale, zero = op.scale_and_zero_point(op.input(i))
        factor = np.float32(scale) * inverse
        table = round_half_away(levels * factor + np.float32(-zero) * factor) + out_zero
        # Copied, as the reference does: the roundings of the rule could move a level.
        if (scale, zero) == (out_scale, out_zero):
            table = levels
        pairs.append((part, op.read(i), np.clip(table, 0, 255).astype(np.uint8)))
    return over(pairs, lambda part, x, table: np.copyto(part, table[x]))


def pack_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the inputs' shape with a new axis of as many entries as inputs."""
    shapes = {op.input(i).shape for i in range(len(op.inputs))}
    if len(shapes) != 1 or op.option("values_count") != len(op.inputs):
        raise op.error(f"{len(op.inputs)} inputs of {len(shapes)} shapes do not stack")
    shape = shapes.pop()
    axis = axis_index(op, op.option("axis"), len(shape) + 1)
    return ((*shape[:axis], len(op.inputs), *shape[axis:]),)


@operator(Op.PACK, max_version=5, infer=pack_shape, types=MOVABLE)
def pack(op: OpContext) -> Kernel:
    """PACK: the inputs stacked along a new axis."""
    op.require_same_type(*range(len(op.inputs)))
    y = op.write()
    stacked = np.moveaxis(y, axis_index(op, op.option("axis"), y.ndim), 0)
    # With `...` even an entry of a list is a view, not a scalar.
    return copies([(stacked[i, ...], op.read(i)) for i in range(len(op.inputs))])
