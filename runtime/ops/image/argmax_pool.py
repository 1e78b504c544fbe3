"""MediaPipe's custom operators MaxPoolingWithArgmax2D and MaxUnpooling2D on [N, H, W, C], float32.

The options are the bytes of a C struct (`TfLitePoolParams`): padding (1 SAME, 2 VALID), stride_w, stride_h,
filter_w, filter_h, activation, int32 each. An index is a float: the place of the maximum in its window, row
by row, and a tenth (`mediapipe/util/tflite/operations/max_pool_argmax.cc`).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime.model.schema import ActivationFunctionType, Padding
from runtime.ops.image.pool import reaching
from runtime.ops.support import Array, Kernel, OpContext, Shape, TensorType
from runtime.ops.support.fused_activation import LARGEST
from runtime.ops.support.quantization import float_activation_range
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.shapes import Window, image_shape, span, window

_OPTIONS = struct.Struct("<6i")
_PADDINGS = {1: Padding.SAME, 2: Padding.VALID}
_LONGEST = 1 << 16
"""The largest stride and filter that is accepted; chosen far above those of models, so that sizes stay small
enough for shapes."""

_TENTH = np.float32(0.1)
"""What an index has above the place, so that a reader that truncates a slightly smaller number finds it."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """The options: heights before widths."""

    padding: Padding
    strides: tuple[int, int]
    filter: tuple[int, int]
    activation: ActivationFunctionType


def pool_options(op: OpContext) -> PoolOptions:
    """Return the operator's options. Raises `ShapeError` where they are missing or out of range."""
    given = op.operator.custom_options
    if len(given) < _OPTIONS.size:
        raise op.error(f"{len(given)} bytes of options, {_OPTIONS.size} are needed")
    padding, stride_w, stride_h, filter_w, filter_h, activation = _OPTIONS.unpack_from(given)
    sizes = (stride_h, stride_w, filter_h, filter_w)
    if padding not in _PADDINGS or not all(0 < size <= _LONGEST for size in sizes):
        raise op.error(f"padding {padding}, strides {sizes[:2]} and filter {sizes[2:]} of its options")
    known = {member.value: member for member in ActivationFunctionType}
    if activation not in known:
        raise op.error(f"activation {activation} of its options")
    return PoolOptions(_PADDINGS[padding], sizes[:2], sizes[2:], known[activation])


def _windows(op: OpContext, options: PoolOptions) -> tuple[Window, Window]:
    _, height, width, _ = image_shape(op)
    rows = window(op, options.padding, height, options.filter[0], options.strides[0])
    return rows, window(op, options.padding, width, options.filter[1], options.strides[1])


def _pool_shape(op: OpContext) -> tuple[Shape, ...]:
    rows, columns = _windows(op, pool_options(op))
    n, _, _, channels = op.input().shape
    return ((n, rows.size, columns.size, channels),) * 2


def _taps(op: OpContext, x: Array) -> Iterator[tuple[int, tuple[slice, ...], Array]]:
    """Yield each tap of the window, row by row: its place, the outputs that it reaches, and their inputs."""
    options = pool_options(op)
    rows, columns = _windows(op, options)
    for i in reaching(rows, options.filter[0], options.strides[0], x.shape[1]):
        out_h, in_h = span(i - rows.before, options.strides[0], x.shape[1], rows.size)
        for j in reaching(columns, options.filter[1], options.strides[1], x.shape[2]):
            out_w, in_w = span(j - columns.before, options.strides[1], x.shape[2], columns.size)
            yield i * options.filter[1] + j, (slice(None), out_h, out_w), x[:, in_h, in_w]


@custom_operator("MaxPoolingWithArgmax2D", infer=_pool_shape)
def max_pool_with_argmax(op: OpContext) -> Kernel:
    """Compute the largest value under each window, NaN left out, and its place; of equal ones the first."""
    op.require(TensorType.FLOAT32)
    x, y, places = op.read(0), op.write(0), op.write(1)
    low, high = float_activation_range(pool_options(op).activation) or (-LARGEST, LARGEST)
    taps = list(_taps(op, x))

    def run() -> None:
        y.fill(-LARGEST)
        places.fill(0)
        for place, where, values in taps:
            larger = values > y[where]
            np.copyto(y[where], values, where=larger)
            np.copyto(places[where], np.float32(place), where=larger)
        np.clip(y, low, high, out=y)
        np.add(places, _TENTH, out=places)

    return run


def _unpool_shape(op: OpContext) -> tuple[Shape, ...]:
    options, (n, height, width, channels) = pool_options(op), image_shape(op)
    if op.input(1).shape != op.input(0).shape:
        raise op.error(f"indices of {list(op.input(1).shape)} for values of {list(op.input(0).shape)}")
    return ((n, height * options.filter[0], width * options.filter[1], channels),)


@custom_operator("MaxUnpooling2D", infer=_unpool_shape)
def max_unpool(op: OpContext) -> Kernel:
    """Write each value to the place in its window that its index says; zeros elsewhere.

    An index outside of the window or the output writes nothing; of overlapping windows the later wins.
    """
    for i in range(2):
        op.require(TensorType.FLOAT32, i=i)
    x, indices, y, options = op.read(0), op.read(1), op.write(), pool_options(op)
    before = unpool_padding(x.shape, options)
    targets = []
    # A smaller tap belongs to a later window: backwards, so that later windows overwrite earlier ones.
    for i in reversed(range(options.filter[0])):
        in_h, out_h = span(i - before[0], options.strides[0], y.shape[1], x.shape[1])
        for j in reversed(range(options.filter[1])):
            in_w, out_w = span(j - before[1], options.strides[1], y.shape[2], x.shape[2])
            source = (slice(None), in_h, in_w)
            targets.append((i * options.filter[1] + j, y[:, out_h, out_w], x[source], indices[source]))

    def run() -> None:
        y.fill(0)
        for place, out, values, wanted in targets:
            np.copyto(out, values, where=np.trunc(wanted) == place)

    return run


def unpool_padding(shape: Shape, options: PoolOptions) -> tuple[int, int]:
    """Return what is cut off above and to the left (`ComputePadding` from the output to the input)."""
    before = [
        max(0, (size - 1) * stride + extent - size * extent) // 2
        for size, stride, extent in zip(shape[1:3], options.strides, options.filter, strict=True)
    ]
    return before[0], before[1]
