"""CONV_2D: windows gathered into a bounded tile of columns (or a view, for 1x1), then one GEMM per tile.

x [N, H, W, Ci], filter [Co, kh, kw, Ci / groups], bias [Co] -> [N, Ho, Wo, Co]. float32, or int8 with int8
filters of zero point 0, exactly as LiteRT's `reference/integer_ops/conv.h`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.shapes import Window, image_shape, require_rank, window
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.quantization import (
    EXACT_FLOAT32_TERMS,
    Requantizer,
    activation_range,
    float_activation_range,
    quantize_multipliers,
)

_TILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the windows of a two-dimensional operator lie."""

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
        """True where every window is the one pixel of its output."""
        return self.filter_h == self.filter_w == self.stride_h == self.stride_w == 1

    @property
    def is_padded(self) -> bool:
        """True where windows reach outside the input."""
        return any((self.rows.before, self.rows.after, self.columns.before, self.columns.after))


def geometry(op: OpContext, filter_h: int, filter_w: int) -> Geometry:
    """The windows over input 0 of an operator with convolution options. Raises `ShapeError`."""
    _, height, width, _ = image_shape(op)
    stride_h, stride_w = op.option("stride_h"), op.option("stride_w")
    dilation_h, dilation_w = op.option("dilation_h_factor"), op.option("dilation_w_factor")
    padding = op.option("padding")
    rows = window(op, padding, height, filter_h, stride_h, dilation_h)
    columns = window(op, padding, width, filter_w, stride_w, dilation_w)
    return Geometry(filter_h, filter_w, stride_h, stride_w, dilation_h, dilation_w, rows, columns)


def check_bias(op: OpContext, channels: int) -> None:
    """Raise `ShapeError` unless input 2 is absent or holds one value per channel."""
    bias = op.optional(2)
    if bias is not None and bias.elements != channels:
        raise op.error(f"bias of shape {list(bias.shape)} for {channels} output channels")


def conv_shape(op: OpContext) -> tuple[Shape, ...]:
    """[N, Ho, Wo, Co]. Raises `ShapeError` where channels do not divide into groups."""
    n, _, _, channels = image_shape(op)
    out_channels, filter_h, filter_w, filter_channels = require_rank(op, 1, 4)
    if filter_channels < 1 or channels % filter_channels:
        raise op.error(f"{channels} input channels do not divide by the filter's {filter_channels}")
    groups = channels // filter_channels
    if groups < 1 or out_channels % groups:
        raise op.error(f"{out_channels} output channels do not divide into {groups} groups")
    check_bias(op, out_channels)
    g = geometry(op, filter_h, filter_w)
    return ((n, g.rows.size, g.columns.size, out_channels),)


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


def tiles(op: OpContext, g: Geometry, x: Array, fill: float, result_bytes: int) -> Iterator[Tile]:
    """Split the output into row blocks that stay in the cache with their float32 columns.

    `fill` lies outside the input; `result_bytes` is what the kernel keeps of each output pixel.
    """
    dtype = np.float32
    n, _, width, channels = x.shape
    depth = g.filter_h * g.filter_w * channels
    direct = x.dtype == dtype and g.is_pointwise
    row_bytes = max(1, g.columns.size * (depth * np.dtype(dtype).itemsize + result_bytes))
    rows = max(1, min(g.rows.size, _TILE_BYTES // row_bytes))
    columns = None if direct else op.temporary((rows * g.columns.size, depth), dtype)
    strip = None
    converts = x.dtype != dtype and g.filter_h * g.filter_w > 1
    if columns is not None and (g.is_padded or converts):
        height = (rows - 1) * g.stride_h + (g.filter_h - 1) * g.dilation_h + 1
        strip = op.temporary((height, width + g.columns.before + g.columns.after, channels), dtype)
    for image in range(n):
        for start in range(0, g.rows.size, rows):
            stop = min(g.rows.size, start + rows)
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
    """The input rows that output rows `start:stop` read, padded; and the copies that bring them there."""
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


def _windows(g: Geometry, source: Array, rows: int) -> Array:
    """A view [rows, Wo, kh, kw * C] (or [.., kh, kw, C] when dilated) of all windows."""
    row, column, item = source.strides
    channels = source.shape[2]
    shape: Shape = (rows, g.columns.size, g.filter_h, g.filter_w * channels)
    strides: Shape = (row * g.stride_h, column * g.stride_w, row * g.dilation_h, item)
    if g.dilation_w > 1:
        shape = (*shape[:3], g.filter_w, channels)
        strides = (*strides[:3], column * g.dilation_w, item)
    return as_strided(source, shape, strides, writeable=False)


@operator(BuiltinOperator.CONV_2D, max_version=8, infer=conv_shape)
def conv(op: OpContext) -> Kernel:
    """Cross-correlation, bias, fused activation."""
    if op.require(TensorType.FLOAT32, TensorType.INT8) is TensorType.INT8:
        return _conv_int8(op)
    op.require(TensorType.FLOAT32, i=1)
    op.require_same_type(0, 1)
    return _conv_float(op)


def _conv_float(op: OpContext) -> Kernel:
    x, weights, y = op.read(0), op.read(1), op.write()
    out_channels, filter_h, filter_w, depth = weights.shape
    g = geometry(op, filter_h, filter_w)
    groups = x.shape[3] // depth
    clamp = float_activation_range(op.activation())
    bias = bias_rows(op, g.columns.size)
    if groups > 1:
        return _grouped(op, g, groups, finish(y, bias, clamp))
    matrix = weights.reshape(out_channels, -1).T
    steps = [
        (t.copies, t.columns, y[t.image, t.start : t.stop].reshape(-1, out_channels),
         y[t.image, t.start : t.stop].reshape(t.stop - t.start, -1))
        for t in tiles(op, g, x, 0.0, 4 * out_channels)
    ]  # fmt: skip

    def run() -> None:
        for copies, columns, out, rows in steps:
            for target, source in copies:
                np.copyto(target, source)
            np.matmul(columns, matrix, out=out)
            if bias is not None:
                np.add(rows, bias, out=rows)
            if clamp is not None:
                np.clip(rows, *clamp, out=rows)

    return run


def bias_rows(op: OpContext, repeats: int) -> Array | None:
    """The bias repeated for a row of `repeats` pixels, so that adding it has a long inner loop."""
    value = op.optional(2)
    if value is None:
        return None
    return np.tile(op.constant(2, "bias").reshape(-1), repeats)


def finish(y: Array, bias: Array | None, clamp: tuple[float, float] | None) -> Kernel:
    """Add the repeated bias and clamp, over a whole [N, H, W, C] output, a few rows at a time."""
    n, height = y.shape[:2]
    rows = y.reshape(n * height, -1)
    step = max(1, _TILE_BYTES // max(1, rows[:1].nbytes))
    blocks = [rows[i : i + step] for i in range(0, len(rows), step)]

    def run() -> None:
        for block in blocks:
            if bias is not None:
                np.add(block, bias, out=block)
            if clamp is not None:
                np.clip(block, *clamp, out=block)

    return run


def _grouped(op: OpContext, g: Geometry, groups: int, end: Kernel) -> Kernel:
    x, weights, y = op.read(0), op.read(1), op.write()
    out_channels, _, _, depth = weights.shape
    each = out_channels // groups
    matrices = weights.reshape(groups, each, -1).transpose(0, 2, 1)
    padded = op.temporary(
        (
            x.shape[1] + g.rows.before + g.rows.after,
            x.shape[2] + g.columns.before + g.columns.after,
            x.shape[3],
        )
    )
    top, left = g.rows.before, g.columns.before
    inside = padded[top : top + x.shape[1], left : left + x.shape[2]]
    row, column, item = padded.strides
    windows = as_strided(
        padded,
        (g.rows.size, g.columns.size, g.filter_h, g.filter_w, x.shape[3]),
        (row * g.stride_h, column * g.stride_w, row * g.dilation_h, column * g.dilation_w, item),
        writeable=False,
    )
    columns = op.temporary((g.rows.size, g.columns.size, g.filter_h, g.filter_w, depth))
    matrix_a = columns.reshape(g.rows.size * g.columns.size, -1)
    out = y.reshape(x.shape[0], -1, groups, each)

    def run() -> None:
        padded.fill(0)
        for image in range(len(x)):
            np.copyto(inside, x[image])
            for group in range(groups):
                np.copyto(columns, windows[..., group * depth : (group + 1) * depth])
                np.matmul(matrix_a, matrices[group], out=out[image, :, group])
        end()

    return run


def conv_multipliers(op: OpContext, channels: int) -> tuple[Array, Array]:
    """Per-channel (multiplier, shift) of in_scale * filter_scale / out_scale, in double precision."""
    in_scale, _ = op.scale_and_zero_point(op.input(0))
    out_scale, _ = op.scale_and_zero_point(op.output())
    q = op.input(1).quantization
    if q is None or q.blocks is not None or q.is_custom or len(q.scales) not in (1, channels):
        raise op.unsupported("the filter has no per-channel scales")
    if any(q.zero_points):
        raise op.unsupported("a filter with a zero point other than 0")
    scales = q.scales * channels if len(q.scales) == 1 else q.scales
    return quantize_multipliers([in_scale * s / out_scale for s in scales])


def int8_requantizer(op: OpContext, channels: int, capacity: int) -> Requantizer:
    """From at most `capacity` accumulators to the int8 output of a convolution, activation included."""
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    clamp = activation_range(op.activation(), out_scale, out_zero, TensorType.INT8)
    return Requantizer(
        *conv_multipliers(op, channels), out_zero, clamp, op.temporary((capacity,), np.float64)
    )


def _conv_int8(op: OpContext) -> Kernel:
    op.require(TensorType.INT8, i=1)
    op.require_same_type(0, 1)
    x, y = op.read(0), op.write()
    weights = op.constant(1, "filter")
    out_channels, filter_h, filter_w, depth = weights.shape
    if x.shape[3] != depth:
        raise op.unsupported("grouped convolution of int8")
    g = geometry(op, filter_h, filter_w)
    _, in_zero = op.scale_and_zero_point(op.input(0))
    gemm = ExactGemm(weights.reshape(out_channels, -1), in_zero, int8_bias(op, out_channels))
    plan = list(tiles(op, g, x, float(in_zero), 20 * out_channels))
    most = max((len(t.columns) for t in plan), default=0)
    requantize = int8_requantizer(op, out_channels, most * out_channels)
    partial = op.temporary((most, out_channels))
    total = op.temporary((most, out_channels), np.float64)
    steps = [(t, y[t.image, t.start : t.stop].reshape(-1, out_channels)) for t in plan]

    def run() -> None:
        for tile, out in steps:
            for target, source in tile.copies:
                np.copyto(target, source)
            acc = total[: len(out)]
            gemm(tile.columns, partial[: len(out)], acc)
            requantize(acc, out)

    return run


def int8_bias(op: OpContext, channels: int) -> Array:
    """The int32 bias as float64, zeros where absent."""
    if op.optional(2) is None:
        return np.zeros(channels)
    op.require(TensorType.INT32, i=2)
    return op.constant(2, "bias").astype(np.float64).reshape(-1)


class ExactGemm:
    """Integer GEMM through float32 BLAS: partial sums are integers below 2^24, never rounded."""

    def __init__(self, weights: Array, in_zero: int, bias: Array) -> None:
        self._offset = bias - in_zero * weights.sum(axis=1, dtype=np.int64)
        depth = weights.shape[1]
        self._parts = [
            (part, weights[:, part].astype(np.float32).T)
            for part in (slice(k, k + EXACT_FLOAT32_TERMS) for k in range(0, depth, EXACT_FLOAT32_TERMS))
        ]

    def __call__(self, a: Array, partial: Array, total: Array) -> None:
        """total = (a - in_zero) @ weights.T + bias, as float64 integers; `a` holds raw int8 levels."""
        offset = self._offset
        for part, matrix in self._parts:
            np.matmul(a[:, part], matrix, out=partial)
            np.add(partial, offset, out=total)
            offset = total
