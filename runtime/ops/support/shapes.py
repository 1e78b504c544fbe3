"""The shape arithmetic that several families share: broadcasting, window sizes, axes."""

import math
from dataclasses import dataclass

from runtime.model.schema import Padding
from runtime.ops.support.context import OpContext
from runtime.ops.support.value import INDICES, Shape


def same_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of input 0 for output 0."""
    return (op.input().shape,)


def broadcast(op: OpContext, *shapes: Shape) -> Shape:
    """Broadcast shapes by numpy's rule, right-aligned; a dimension of 0 stays 0. Raises `ShapeError`."""
    result: list[int] = []
    for axis in range(1, max(len(s) for s in shapes) + 1):
        sizes = {s[-axis] for s in shapes if len(s) >= axis} - {1}
        if len(sizes) > 1:
            raise op.error(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


def broadcast_inputs(op: OpContext) -> tuple[Shape, ...]:
    """Return the broadcast of inputs 0 and 1 for output 0."""
    return (broadcast(op, op.input(0).shape, op.input(1).shape),)


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial axis of a window operator: how many outputs, and the zeros before and after the input."""

    size: int
    before: int
    after: int


def window(op: OpContext, padding: Padding, size: int, extent: int, stride: int, dilation: int = 1) -> Window:
    """Return the output size and padding of one axis, as LiteRT's `padding.h` computes them.

    SAME gives ceil(in / stride) outputs; an odd number of zeros has the larger half behind. VALID counts the
    windows that lie inside the input. Raises `ShapeError`.
    """
    if stride < 1 or dilation < 1 or extent < 1:
        raise op.error(f"filter {extent}, stride {stride} and dilation {dilation} must be positive")
    effective = (extent - 1) * dilation + 1
    if padding is Padding.SAME:
        out = -(-size // stride)
        total = max(0, (out - 1) * stride + effective - size)
        return Window(out, total // 2, total - total // 2)
    out = (size + stride - effective) // stride
    if out < 0 or (out == 0 and size > 0):
        raise op.error(f"a filter of {effective} (dilated) does not fit an input of {size}")
    return Window(out, 0, 0)


def span(offset: int, stride: int, size: int, outputs: int) -> tuple[slice, slice]:
    """Return the outputs whose window has an input at a tap, and those inputs; `offset` is output 0's."""
    # -(a // b) is ceil(-a / b): the first output whose tap is not in the padding.
    low = min(outputs, max(0, -(offset // stride)))
    high = max(low, min(outputs, (size - 1 - offset) // stride + 1))
    start = offset + low * stride
    return slice(low, high), slice(start, max(start, start + (high - low - 1) * stride + 1), stride)


def spread(low: int, step: int, total: int, size: int) -> tuple[slice, slice]:
    """Return which outputs the elements of a padded axis become, and which elements are kept.

    Element i becomes output `low + i * step` of `total`; negative padding crops.
    """
    # Both are quotients rounded up, of -low and of total - low.
    first = max(0, -(low // step))
    last = max(first, min(size, -((low - total) // step)))
    begin = low + first * step
    return slice(begin, begin + (last - first) * step, step), slice(first, last)


def axis_index(op: OpContext, axis: int, rank: int) -> int:
    """Return `axis` counted from the front. Raises `ShapeError` outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise op.error(f"axis {axis} is outside rank {rank}")
    return axis % rank


def stated_axis(op: OpContext, i: int, rank: int) -> int:
    """Return the one axis in input `i`, counted from the front. Raises `ShapeError` outside [-rank, rank)."""
    axes = op.integers(i, "axis")
    if len(axes) != 1:
        raise op.error(f"{len(axes)} axes where one is needed")
    return axis_index(op, axes[0], rank)


def stated_shape(op: OpContext, i: int) -> Shape:
    """Return the shape in input `i`. Raises `ShapeError` where it is no list of sizes."""
    op.require(*INDICES, i=i)
    shape = op.integers(i, "shape")
    if len(op.input(i).shape) != 1 or min(shape, default=0) < 0:
        raise op.error(f"{list(shape)} is not a shape")
    return shape


def reshaped(op: OpContext, elements: int, target: Shape) -> Shape:
    """Return `target` with its one -1 resolved. Raises `ShapeError` where the number of elements differs."""
    unknown = [i for i, d in enumerate(target) if d == -1]
    known = math.prod(d for d in target if d != -1)
    if len(unknown) > 1 or any(d < -1 for d in target):
        raise op.error(f"shape {list(target)} has more than one unknown dimension")
    result = list(target)
    if unknown:
        # With a dimension of 0 beside it, any size would do for -1.
        if known == 0 or elements % known:
            raise op.error(f"{elements} elements do not fill shape {list(target)}")
        result[unknown[0]] = elements // known
    elif known != elements:
        raise op.error(f"{elements} elements do not fill shape {list(target)}")
    return tuple(result)


def require_rank(op: OpContext, i: int, *ranks: int) -> Shape:
    """Return the shape of input `i`. Raises `ShapeError` where its rank is not one of `ranks`."""
    shape = op.input(i).shape
    if len(shape) not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise op.error(f"input {i} has shape {list(shape)}, rank {wanted} is needed")
    return shape


def image_shape(op: OpContext, i: int = 0) -> tuple[int, int, int, int]:
    """Return [N, H, W, C] of input `i`. Raises `ShapeError` for another rank or an image without pixels."""
    n, height, width, channels = require_rank(op, i, 4)
    if min(height, width, channels) < 1:
        raise op.error(f"input {i} of shape {[n, height, width, channels]} has no pixels")
    return n, height, width, channels
