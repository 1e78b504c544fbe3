"""Windows of convolutions: their geometry, and the gathering of their columns tile by tile."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.model.schema import Padding
from runtime.ops.support import Array, OpContext, Shape
from runtime.ops.support.parallel import shares
from runtime.ops.support.shapes import Window, image_shape, window

TILE_BYTES = 1 << 20
"""Bytes of a tile's columns and results. Chosen to stay in a second-level cache until the activation."""

LARGEST_TILE_BYTES = 8 << 20
"""Bytes of a tile under a filter larger than `TILE_BYTES`. Chosen: every tile reads the whole filter once, so
that the tile grows with the filter; beyond this bound it would leave the last-level cache of a small
machine."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The positions of the windows of a two-dimensional operator."""

    filter_h: int
    filter_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    rows: Window
    columns: Window

    @property
    def is_pointwise(self) -> bool:
        """Whether every window is the one pixel of its output."""
        return self.filter_h == self.filter_w == self.stride_h == self.stride_w == 1

    @property
    def is_padded(self) -> bool:
        """Whether windows reach outside the input."""
        return any((self.rows.before, self.rows.after, self.columns.before, self.columns.after))


def geometry(op: OpContext, filter_h: int, filter_w: int) -> Geometry:
    """Return the windows over input 0 of an operator with convolution options. Raises `ShapeError`."""
    _, height, width, _ = image_shape(op)
    stride_h, stride_w = op.option("stride_h"), op.option("stride_w")
    dilation_h, dilation_w = op.option("dilation_h_factor"), op.option("dilation_w_factor")
    padding = op.option("padding")
    rows = window(op, padding, height, filter_h, stride_h, dilation_h)
    columns = window(op, padding, width, filter_w, stride_w, dilation_w)
    return Geometry(filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w, rows, columns)


@dataclass(frozen=True, slots=True)
class Tile:
    """Some output rows of one image: how their columns are gathered, and where the result goes.

    `columns` [rows * Wo, kh * kw * C] is filled by the copies in order; for a 1x1 filter it is the input.
    """

    image: int
    start: int
    stop: int
    copies: tuple[tuple[Array, Array | float], ...]
    columns: Array


def tiles(
    op: OpContext,
    g: Geometry,
    x: Array,
    fill: float,
    result_bytes: int,
    dtype: Any = np.float32,
    lanes: int = 1,
    filter_bytes: int = 0,
) -> list[list[Tile]]:
    """Split the output into row blocks that stay in the cache with their columns of `dtype`, for each lane.

    `fill` lies outside the input; `result_bytes` is what the kernel keeps of each output pixel. A tile is not
    smaller than the filter, of `filter_bytes`, which is gone through once for each.
    """
    depth = g.filter_h * g.filter_w * x.shape[3]
    row_bytes = max(1, g.columns.size * (depth * np.dtype(dtype).itemsize + result_bytes))
    # No tile is larger than a lane's share of the rows, or some lanes would get none.
    share = -(-len(x) * g.rows.size // lanes)
    tile_bytes = max(TILE_BYTES, min(filter_bytes, LARGEST_TILE_BYTES))
    rows = max(1, min(g.rows.size, share, tile_bytes // row_bytes))
    blocks = [
        (image, start, min(start + rows, g.rows.size))
        for image in range(len(x))
        for start in range(0, g.rows.size, rows)
    ]
    return [
        list(_lane(op, g, x, fill, dtype, rows, blocks[part.start : part.stop]))
        for part in shares(len(blocks), lanes)
    ]


def _lane(
    op: OpContext,
    g: Geometry,
    x: Array,
    fill: float,
    dtype: Any,
    rows: int,
    blocks: list[tuple[int, int, int]],
) -> Iterator[Tile]:
    """Yield tiles of `blocks` (image, first row, end), at most `rows` high, that share memory for columns."""
    _, _, width, channels = x.shape
    depth = g.filter_h * g.filter_w * channels
    direct = x.dtype == dtype and g.is_pointwise
    columns = None if direct else op.temporary((rows * g.columns.size, depth), dtype)
    strip = None
    # A pixel lies under many windows: what must be padded or converted is, once, in a strip of input rows.
    converts = x.dtype != dtype and g.filter_h * g.filter_w > 1
    if columns is not None and (g.is_padded or converts):
        height = (rows - 1) * g.stride_h + (g.filter_h - 1) * g.dilation_h + 1
        strip = op.temporary((height, width + g.columns.before + g.columns.after, channels), dtype)
    for image, start, stop in blocks:
        if columns is None:
            view = x[image, start:stop].reshape(-1, channels)
            yield Tile(image, start, stop, (), view)
            continue
        copies, source = _source(g, x[image], strip, start, stop, fill)
        target = columns[: (stop - start) * g.columns.size]
        windows = _windows(g, source, stop - start)
        copies.append((target.reshape(windows.shape), windows))
        yield Tile(image, start, stop, tuple(copies), target)


def _source(
    g: Geometry, image: Array, strip: Array | None, start: int, stop: int, fill: float
) -> tuple[list[tuple[Array, Array | float]], Array]:
    """Return the copies that pad the input rows of output rows `start:stop`, and the padded rows."""
    height, width, _ = image.shape
    first = start * g.stride_h - g.rows.before
    last = (stop - 1) * g.stride_h - g.rows.before + (g.filter_h - 1) * g.dilation_h + 1
    if strip is None:
        return [], image[first:last]
    source = strip[: last - first]
    above, below = max(0, -first), max(0, last - height)
    inside = source[above : last - first - below]
    left = g.columns.before
    edges = (source[:above], source[last - first - below :], inside[:, :left], inside[:, left + width :])
    copies: list[tuple[Array, Array | float]] = [(edge, fill) for edge in edges if edge.size]
    copies.append((inside[:, left : left + width], image[first + above : last - below]))
    return copies, source


def transposed_before(padding: Padding, out: int, extent: int, stride: int, dilation: int = 1) -> int:
    """Return what is cut off in front, as if the output were convolved to the input (`padding.h`)."""
    effective = (extent - 1) * dilation + 1
    steps = -(-out // stride) if padding is Padding.SAME else (out + stride - effective) // stride
    return max(0, (steps - 1) * stride + effective - out) // 2


def transposed_span(offset: int, stride: int, size: int, out: int) -> tuple[slice, slice]:
    """Return which of `size` inputs i land at `i * stride + offset` inside `out` outputs, and where."""
    low = max(0, -(offset // stride))
    high = max(low, min(size, (out - 1 - offset) // stride + 1))
    start = offset + low * stride
    return slice(low, high), slice(start, max(start, start + (high - low - 1) * stride + 1), stride)


def _windows(g: Geometry, source: Array, rows: int) -> Array:
    """Return a view [rows, Wo, kh, kw * C] (or [.., kh, kw, C] when dilated) of all windows."""
    row, column, item = source.strides
    channels = source.shape[2]
    # Without dilation the taps of a filter's row are neighbours: one axis for taps and channels copies longer
    # runs.
    shape: Shape = (rows, g.columns.size, g.filter_h, g.filter_w * channels)
    strides: Shape = (row * g.stride_h, column * g.stride_w, row * g.dilation_h, item)
    if g.dilation_w > 1:
        shape = (*shape[:3], g.filter_w, channels)
        strides = (*strides[:3], column * g.dilation_w, item)
    return as_strided(source, shape, strides, writeable=False)
