"""DEPTHWISE_CONV_2D: each channel has its own filter; a sum over the taps of shifted views.

x [N, H, W, C], filter [1, kh, kw, C * m], bias [C * m] -> [N, Ho, Wo, C * m]; output channel c * m + j reads
input channel c. float32; int8, uint8 and int16 exactly as `reference/integer_ops/depthwise_conv.h` and
`reference/depthwiseconv_uint8.h`; float activations with int8 filters as `DepthwiseConvHybridPerChannel`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.ops.matmul import integer_gemm
from runtime.ops.matmul.conv import RowsEnd, check_bias, plain_end, scaled_end
from runtime.ops.matmul.hybrid import RowQuantizer, channel_scales, filter_levels, is_hybrid
from runtime.ops.matmul.windows import Geometry, geometry
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.blocks import in_turn, over
from runtime.ops.support.parallel import lane_count, shares, together
from runtime.ops.support.quantization import RANGES
from runtime.ops.support.shapes import image_shape, require_rank, span

_RUN_ELEMENTS = 4096
"""Output elements of a row that one inner loop covers. Chosen: long enough to outweigh the loop's start,
short enough that input, sums and the filter of a tap, 16 KiB of float32 each, are in cache at the next
tap."""

_BLOCK_BYTES = 256 << 10
"""Bytes of float32 output of a strip. Chosen, so that a strip and the input under it stay in a second-level
cache until bias and activation are applied."""

_EXACT_TAPS = {TensorType.INT8: 512, TensorType.UINT8: 256, TensorType.INT16: 2}
"""Products of centred levels that a float32 sum holds exactly: 255 * 128, 255 * 255, 32768 * 128 each."""


def depthwise_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, Ho, Wo, C * m]. Raises `ShapeError` where the filter is no multiple of the channels."""
    n, _, _, channels = image_shape(op)
    first, filter_h, filter_w, out_channels = require_rank(op, 1, 4)
    if first != 1 or channels < 1 or out_channels % channels:
        raise op.error(f"filter of shape {list(op.input(1).shape)} for {channels} input channels")
    check_bias(op, out_channels)
    g = geometry(op, filter_h, filter_w)
    return ((n, g.rows.size, g.columns.size, out_channels),)


@dataclass(frozen=True, slots=True)
class _Strip:
    """Some output rows of an image, and the input under their windows.

    Before each use `edges` are filled and the copies made. `windows` [rows, runs, kh, kw, run * C] belong to
    `_Run`s of columns.
    """

    image: int
    rows: slice
    edges: tuple[Array, ...]
    copies: tuple[tuple[Array, Array], ...]
    windows: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """`count` times `width` neighbouring output columns, each of which is one long inner loop."""

    first: int
    count: int
    width: int

    def of(self, rows: Array) -> Array:
        """Their part of rows [n, Wo, C], as [n, count, width * C]."""
        part = rows[:, self.first : self.first + self.count * self.width]
        return part.reshape(len(rows), self.count, -1)


_Finish = Callable[[_Strip], Kernel]


@operator(
    Op.DEPTHWISE_CONV_2D,
    max_version=7,
    infer=depthwise_shape,
    types=(TensorType.FLOAT32, *integer_gemm.LEVELS),
    note="float32 with float32 or int8 filters; int8 and int16 with int8 filters",
)
def depthwise_conv(op: OpContext) -> Kernel:
    """DEPTHWISE_CONV_2D: a sum over taps per channel, bias, fused activation.

    The multiplier m follows from the shapes: old files state a wrong `depth_multiplier`, or none.
    """
    kind = op.input().type
    if kind is not TensorType.FLOAT32:
        integer_gemm.require_filter(op, kind)
        return _depthwise_levels(op, kind)
    if is_hybrid(op):
        return _depthwise_hybrid(op)
    op.require(TensorType.FLOAT32, i=1)
    weights = op.constant(1, "filter")
    return _sums(op, op.read(0), 0, weights, partial(_float_rows, op, plain_end(op, op.output().shape[2])))


def _depthwise_hybrid(op: OpContext) -> Kernel:
    """Return the hybrid kernel: each image is quantised by itself, asymmetrically.

    LiteRT does so even where all channels have one scale, unlike in CONV_2D.
    """
    x, (_, _, width, channels) = op.read(0), op.output().shape
    quantizer = RowQuantizer(op, x.reshape(len(x), -1), asymmetric=True)
    end = scaled_end(op, quantizer.scales, channel_scales(op, channels), width)
    levels = quantizer.levels.reshape(x.shape)
    run_sums = _sums(op, levels, 0, filter_levels(op), partial(_float_rows, op, end))
    return in_turn(quantizer, run_sums)


def _depthwise_levels(op: OpContext, kind: TensorType) -> Kernel:
    """Return the kernel of quantised activations: sums over few taps are exact in float32, else in float64.

    The filter is centred, and the input's zero point is subtracted from the sums by way of the bias.
    """
    weights = integer_gemm.centred_filter(op)
    taps = weights.shape[1] * weights.shape[2]
    exact = taps <= _EXACT_TAPS[kind]
    filters = weights.astype(np.float32 if exact else np.float64)
    zero = integer_gemm.input_zero_point(op)
    bias = integer_gemm.integer_bias(op, weights.shape[3]) - zero * weights.sum(
        axis=(0, 1, 2), dtype=np.int64
    )
    largest = np.abs(weights).sum(axis=(0, 1, 2), dtype=np.int64) * max(abs(bound) for bound in RANGES[kind])
    # No sum exceeds it in size, the bias included. Where it is small, requantisation takes a cheaper way.
    limit = float((largest + np.abs(bias)).max(initial=0))
    return _sums(op, op.read(0), zero, filters, partial(_level_rows, op, bias, limit))


def _sums(op: OpContext, x: Array, fill: int, weights: Array, make: Callable[..., _Finish]) -> Kernel:
    """Return a kernel that gathers each strip's input, with `fill` outside the image, and finishes the strip.

    `make(filters, runs, most)` gives each thread a function from a strip of at most `most` rows to its
    kernel.
    """
    y = op.write()
    _, filter_h, filter_w, channels = weights.shape
    g = geometry(op, filter_h, filter_w)
    runs = _runs(g.columns.size, channels)
    # The filter is repeated for each column of a run: filter and input then have one long last axis.
    filters = np.tile(weights[0], (1, 1, runs[0].width))
    lanes = lane_count(op, y.size * filter_h * filter_w)
    # No strip is so high that a thread would be left without one.
    step = max(1, min(_BLOCK_BYTES // max(1, 4 * g.columns.size * channels), -(-g.rows.size // lanes)))
    blocks = [slice(i, min(i + step, g.rows.size)) for i in range(0, g.rows.size, step)]
    parts = [blocks[part.start : part.stop] for part in shares(len(blocks), lanes)]
    return together(
        [
            _lane(_strips(op, g, x, runs, channels, weights.dtype, part), make(filters, runs, step), fill)
            for part in parts
        ]
    )


def _lane(strips: Iterable[_Strip], finish: _Finish, fill: int) -> Kernel:
    steps = [(strip.edges, strip.copies, finish(strip)) for strip in strips]

    def run() -> None:
        for edges, copies, end in steps:
            # In every run: other strips, and other operators in between, use the same memory.
            for edge in edges:
                edge.fill(fill)
            for target, source in copies:
                np.copyto(target, source)
            end()

    return run


def _products(strip: _Strip, filters: Array, runs: Sequence[_Run], out: Array) -> Kernel:
    """Return a kernel that writes the sums of products of a strip to `out` [rows, Wo, C].

    einsum needs no temporary for the products of a tap, as a multiplication and an addition would.
    """
    parts = [
        (windows, filters[:, :, : windows.shape[4]], run.of(out))
        for windows, run in zip(strip.windows, runs, strict=True)
    ]
    return over(parts, lambda windows, taps, target: np.einsum("hwijr,ijr->hwr", windows, taps, out=target))


def _float_rows(op: OpContext, end: RowsEnd, filters: Array, runs: Sequence[_Run], _most: int) -> _Finish:
    """Return what sums a strip into the output itself, and finishes its rows."""
    y = op.write()

    def finish(strip: _Strip) -> Kernel:
        out = y[strip.image, strip.rows]
        products, rows = _products(strip, filters, runs, out), out.reshape(len(out), -1)

        def run() -> None:
            products()
            end(rows, strip.image)

        return run

    return finish


def _level_rows(
    op: OpContext, bias: Array, limit: float, filters: Array, runs: Sequence[_Run], most: int
) -> _Finish:
    """Return what sums a strip in floating point, and turns the exact sums into output levels."""
    y = op.write()
    shape = (most, *y.shape[2:])
    stage = integer_gemm.output_stage(
        op, y.shape[3], math.prod(shape), offset=bias, limit=limit, width=y.shape[2]
    )
    sums = op.temporary(shape, filters.dtype)

    def finish(strip: _Strip) -> Kernel:
        out = y[strip.image, strip.rows]
        some = sums[: len(out)]
        products = _products(strip, filters, runs, some)

        def run() -> None:
            products()
            stage(some, out)

        return run

    return finish


def _runs(columns: int, channels: int) -> list[_Run]:
    """Split the columns into runs of about `_RUN_ELEMENTS`, of one width but for a shorter last one."""
    count = max(1, min(columns, -(-columns * channels // _RUN_ELEMENTS)))
    width = max(1, -(-columns // count))
    whole, rest = divmod(columns, width)
    last = [_Run(whole * width, 1, rest)] if rest else []
    return [_Run(0, whole, width), *last]


def _strips(
    op: OpContext, g: Geometry, x: Array, runs: Sequence[_Run], channels: int, dtype: Any, blocks: list[slice]
) -> Iterator[_Strip]:
    """Yield the strips of `blocks` of output rows in every image; they share one memory.

    It holds the rows with the padding around them; with a stride along the row one plane [rows, Wo, C] for
    each tap instead, so that neighbouring outputs read contiguous inputs again.
    """
    height, width = x.shape[1:3]
    # Nothing to convert, repeat, pad or bring together: windows are views of the input itself.
    is_plain = x.dtype == dtype and channels == x.shape[3] and not g.is_padded and g.stride_w == 1
    copies = _column_copies(g, width)
    most = max(b.stop - b.start for b in blocks) if blocks else 0
    row_count = (most - 1) * g.stride_h + (g.filter_h - 1) * g.dilation_h + 1
    plane_width = width + g.columns.before + g.columns.after if g.stride_w == 1 else g.columns.size
    shape = (len(copies), row_count, plane_width, channels)
    planes = None if is_plain else op.temporary(shape, dtype)
    for image, block in product(range(len(x)), blocks):
        first = block.start * g.stride_h - g.rows.before
        last = (block.stop - 1) * g.stride_h - g.rows.before + (g.filter_h - 1) * g.dilation_h + 1
        count = block.stop - block.start
        if planes is None:
            yield _Strip(image, block, (), (), _windows(g, x[image : image + 1, first:last], count, runs))
            continue
        above, below = max(0, -first), max(0, last - height)
        source = x[image, first + above : last - below]
        used = planes[:, : last - first]
        edges, filled = _fill(used, above, below, source, copies)
        yield _Strip(image, block, edges, filled, _windows(g, used, count, runs))


def _column_copies(g: Geometry, width: int) -> list[tuple[slice, slice]]:
    """Return, for each plane, the columns that come from the image, and the image's columns."""
    if g.stride_w == 1:
        return [(slice(g.columns.before, g.columns.before + width), slice(0, width))]
    taps = (tap * g.dilation_w - g.columns.before for tap in range(g.filter_w))
    return [span(first, g.stride_w, width, g.columns.size) for first in taps]


def _fill(
    planes: Array, above: int, below: int, source: Array, columns: list[tuple[slice, slice]]
) -> tuple[tuple[Array, ...], tuple[tuple[Array, Array], ...]]:
    """Return edges of `planes` [n, rows, columns, C * m] outside the image, and copies from `source`.

    `source` is [rows, W, C]; each of its channels is copied to the m places of its output channels.
    """
    end, depth = planes.shape[1] - below, source.shape[2]
    edges: list[Array] = [planes[:, :above], planes[:, end:]]
    copies = []
    for plane, (where, taken) in zip(planes, columns, strict=True):
        inside = plane[above:end]
        edges += [inside[:, : where.start], inside[:, where.stop :]]
        target = inside[:, where]
        shape = (*target.shape[:2], depth, planes.shape[3] // depth)
        copies.append((target.reshape(shape), source[:, taken, :, None]))
    return tuple(e for e in edges if e.size), tuple(copies)


def _windows(g: Geometry, planes: Array, rows: int, runs: Sequence[_Run]) -> tuple[Array, ...]:
    """Return, for every run, a view of the windows over `planes` [n, rows, columns, C]."""
    plane, row, column, item = planes.strides
    tap = column * g.dilation_w if g.stride_w == 1 else plane
    channels = planes.shape[3]
    return tuple(
        as_strided(
            planes[:, :, run.first :],
            (rows, run.count, g.filter_h, g.filter_w, run.width * channels),
            (row * g.stride_h, column * run.width, row * g.dilation_h, tap, item),
            # Windows overlap: writing to one would change others.
            writeable=False,
        )
        for run in runs
    )
