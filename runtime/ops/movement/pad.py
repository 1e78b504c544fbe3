"""A border around a tensor: PAD and PADV2 of a constant value, MIRROR_PAD of its own elements."""

import numpy as np

from runtime.model.schema import MirrorPadMode
from runtime.ops.movement.copies import copies, copy, quantized_zero, require_same_scale
from runtime.ops.support import MOVABLE, PLAIN, QUANTIZED, Array, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.shapes import spread


def _paddings(op: OpContext) -> list[tuple[int, int]]:
    shape, values = op.input(1).shape, op.integers(1, "paddings")
    rank = len(op.input(0).shape)
    if shape != (rank, 2) or any(v < 0 for v in values):
        raise op.error(f"paddings {list(values)} of shape {list(shape)} do not fit rank {rank}")
    return list(zip(values[::2], values[1::2], strict=True))


def pad_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return each dimension plus its padding before and behind."""
    return (tuple(d + a + b for d, (a, b) in zip(op.input().shape, _paddings(op), strict=True)),)


def _inside(x: Array, paddings: list[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, paddings, strict=True))


@operator(Op.PAD, Op.PADV2, max_version=6, infer=pad_shape, types=PLAIN)
def pad(op: OpContext) -> Kernel:
    """PAD with real zero, PADV2 with input 2; quantised types need equal quantisation."""
    op.require_same_type(0)
    x, y, paddings = op.read(0), op.write(), _paddings(op)
    value = 0
    if op.input().type in QUANTIZED:
        require_same_scale(op, op.input(), op.output())
        value = quantized_zero(op.output())
    fill = op.read(2).reshape(-1) if op.optional(2) is not None else np.full(1, value, y.dtype)
    # Borders of one axis reach over the whole later axes, and over the inside of earlier ones: each element
    # is written once.
    inside = _inside(x, paddings)
    borders = []
    for axis, (before, behind) in enumerate(paddings):
        within = inside[:axis]
        size = y.shape[axis]
        borders += [y[(*within, s)] for s in (slice(0, before), slice(size - behind, size))]
    return copies([*((edge, fill) for edge in borders if edge.size), (y[inside], x)])


def mirror_pad_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of PAD. Raises `ShapeError` where a border is wider than what it mirrors."""
    shape, skipped = op.input().shape, _skipped(op)
    if any(max(p) > max(d - skipped, 0) for d, p in zip(shape, _paddings(op), strict=True)):
        raise op.error(f"paddings {_paddings(op)} mirror more than shape {list(shape)} has")
    return pad_shape(op)


def _skipped(op: OpContext) -> int:
    """Return the elements between the border and its mirror image: 1 in REFLECT, the edge itself, else 0."""
    return 1 if op.option("mode") is MirrorPadMode.REFLECT else 0


@operator(Op.MIRROR_PAD, max_version=3, infer=mirror_pad_shape, types=MOVABLE)
def mirror_pad(op: OpContext) -> Kernel:
    """MIRROR_PAD: the border mirrors the inside; REFLECT leaves the edge out, SYMMETRIC repeats it.

    Axis after axis, each over the borders of the ones before, so that corners are mirrored twice.
    """
    op.require_same_type(0)
    x, y, paddings, skipped = op.read(0), op.write(), _paddings(op), _skipped(op)
    inside = _inside(x, paddings)
    pairs = [(y[inside], x)]
    for axis, (before, behind) in enumerate(paddings):
        filled = np.moveaxis(y[(slice(None),) * (axis + 1) + inside[axis + 1 :]], axis, 0)
        first, last = before + skipped, filled.shape[0] - behind - skipped
        if before:
            pairs.append((filled[:before], filled[first : first + before][::-1]))
        if behind:
            pairs.append((filled[filled.shape[0] - behind :], filled[last - behind : last][::-1]))
    return copies(pairs)


def dilate_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return (d - 1) * dilation + 1 along each axis, 0 for an empty one."""
    shape, factors = op.input().shape, op.integers(1, "dilations")
    if len(factors) != len(shape) or min(factors, default=1) < 1:
        raise op.error(f"dilations {list(factors)} for shape {list(shape)}")
    return (tuple(max((d - 1) * f + 1, 0) for d, f in zip(shape, factors, strict=True)),)


@operator(Op.DILATE, infer=dilate_shape, types=MOVABLE)
def dilate(op: OpContext) -> Kernel:
    """DILATE: the input's elements apart from each other, with input 2 between them."""
    op.require_same_type(0, 2)
    y, value = op.write(), op.read(2).reshape(-1)[:1]
    kept = y[tuple(slice(None, None, f) for f in op.integers(1, "dilations"))]
    return copies([(y, value), (kept, op.read(0))])


def stablehlo_pad_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return each dimension with interior, low and high padding; negative padding crops, down to 0."""
    return (tuple(max(0, total) for _, _, total in _edges(op)),)


def _edges(op: OpContext) -> list[tuple[int, int, int]]:
    """Return (low, step, size of the output) for each axis."""
    shape = op.input().shape
    low, high, interior = (
        op.option(n) for n in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    if not len(low) == len(high) == len(interior) == len(shape) or min(interior, default=0) < 0:
        raise op.error(f"paddings {list(low)}, {list(high)}, {list(interior)} for shape {list(shape)}")
    sizes = zip(shape, low, high, interior, strict=True)
    return [(a, i + 1, a + b + (d + (d - 1) * i if d else 0)) for d, a, b, i in sizes]


@operator(Op.STABLEHLO_PAD, infer=stablehlo_pad_shape, types=MOVABLE)
def stablehlo_pad(op: OpContext) -> Kernel:
    """STABLEHLO_PAD: padding with input 1 at the edges and between elements; negative padding crops."""
    op.require_same_type(0, 1)
    x, y = op.read(0), op.write()
    pairs = [spread(*edge, dim) for edge, dim in zip(_edges(op), x.shape, strict=True)]
    fill = copy(y, op.read(1).reshape(-1)[:1])
    target, source = y[tuple(t for t, _ in pairs)], x[tuple(s for _, s in pairs)]
    if not source.size:
        return fill
    return in_turn(fill, copy(target, source))
