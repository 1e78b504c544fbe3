"""DEPTHWISE_CONV_2D: each channel has its own filter; a sum over the taps of shifted views.

x [N, H, W, C], filter [1, kh, kw, C * m], bias [C * m] -> [N, Ho, Wo, C * m]; output channel c * m + j reads
input channel c. float32; int8, uint8 and int16 exactly as `reference/integer_ops/depthwise_conv.h` and
`reference/depthwiseconv_uint8.h`; float activations with int8 filters as `DepthwiseConvHybridPerChannel`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.conv import RowsEnd, check_bias, plain_end, scaled_end
from runtime.ops.hybrid import (
    RowQuantizer,
    channel_scales,
    differs_by_channel,
    filter_levels,
    is_hybrid,
)
from runtime.ops.integer_gemm import (
    LEVELS,
    centred_filter,
    integer_bias,
    level_zero,
    output_stage,
    require_filter,
)
from runtime.ops.parallel import lane_count, shares, together
from runtime.ops.shapes import image_shape, require_rank
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.ops.windows import Geometry, geometry

_RUN_ELEMENTS = 4096
_BLOCK_BYTES = 256 << 10
_EXACT_TAPS = {TensorType.INT8: 512, TensorType.UINT8: 256, TensorType.INT16: 2}
"""Products of centred levels that a float32 sum holds exactly: 255 * 128, 255 * 255, 32768 * 128 each."""


def depthwise_shape(op: OpContext) -> tuple[Shape, ...]:
    """[N, Ho, Wo, C * m]. Raises `ShapeError` where the filter is no multiple of the channels."""
    n, _, _, channels = image_shape(op)
    first, filter_h, filter_w, out_channels = require_rank(op, 1, 4)
    if first != 1 or channels < 1 or out_channels % channels:
        raise op.error(f"filter of shape {list(op.input(1).shape)} for {channels} input channels")
    check_bias(op, out_channels)
    g = geometry(op, filter_h, filter_w)
    return ((n, g.rows.size, g.columns.size, out_channels),)


# Brings one image into windows [Ho, Wo / run, kh, kw, run * C] of floats.
_Taps = Callable[[int], Array]
_Block = Callable[[int, slice, Array], Any]


@operator(
    BuiltinOperator.DEPTHWISE_CONV_2D,
    max_version=7,
    infer=depthwise_shape,
    types=(TensorType.FLOAT32, *LEVELS),
    note="float32 with float32 or int8 filters; int8 and int16 with int8 filters",
)
def depthwise_conv(op: OpContext) -> Kernel:
    """Sum over taps, bias, fused activation."""
    kind = op.require(TensorType.FLOAT32, *LEVELS)
    if kind is not TensorType.FLOAT32:
        require_filter(op, kind)
        return _depthwise_levels(op, kind)
    if is_hybrid(op):
        return _depthwise_hybrid(op)
    op.require(TensorType.FLOAT32, i=1)
    weights = op.constant(1, "filter")
    return _sums(op, op.read(0), 0.0, weights, partial(_float_block, plain_end(op, op.output().shape[2])))


def _depthwise_hybrid(op: OpContext) -> Kernel:
    """Each image is quantised by itself."""
    x, (_, _, width, channels) = op.read(0), op.output().shape
    quantizer = RowQuantizer(op, x.reshape(len(x), -1), asymmetric=differs_by_channel(op))
    end = scaled_end(op, quantizer.scales, channel_scales(op, channels), width)
    levels = quantizer.levels.reshape(x.shape)
    run_sums = _sums(op, levels, 0.0, filter_levels(op), partial(_float_block, end))

    def run() -> None:
        quantizer()
        run_sums()

    return run


def _depthwise_levels(op: OpContext, kind: TensorType) -> Kernel:
    """Few taps: their sums are exact in float32 for 8-bit levels, in float64 for 16-bit ones."""
    weights = centred_filter(op)
    taps = weights.shape[1] * weights.shape[2]
    exact = taps <= _EXACT_TAPS[kind]
    filters = weights.astype(np.float32 if exact else np.float64)
    return _sums(op, op.read(0), float(level_zero(op)), filters, partial(_levels_block, op))


def _sums(op: OpContext, x: Array, zero: float, weights: Array, make_block: Callable[..., _Block]) -> Kernel:
    """Run `make_block(geometry, filters, y, step)` over row blocks; windows are of the filter's dtype."""
    y = op.write()
    _, filter_h, filter_w, channels = weights.shape
    g = geometry(op, filter_h, filter_w)
    run_width = _run_width(g.columns.size, channels)
    taps = _taps(op, g, x, zero, channels, run_width, weights.dtype)
    filters = np.tile(weights[0], (1, 1, run_width))
    lanes = lane_count(op, y.size * filter_h * filter_w)
    step = max(1, min(_BLOCK_BYTES // max(1, 4 * g.columns.size * channels), -(-g.rows.size // lanes)))
    blocks = [slice(i, min(i + step, g.rows.size)) for i in range(0, g.rows.size, step)]
    share_out = together(
        [
            _lane(blocks[part.start : part.stop], make_block(g, filters, y, step))
            for part in shares(len(blocks), lanes)
        ]
    )

    def run() -> None:
        for image in range(len(x)):
            share_out(image, taps(image))

    return run


def _lane(blocks: list[slice], finish: _Block) -> Callable[[int, Array], None]:
    def run(image: int, windows: Array) -> None:
        for block in blocks:
            finish(image, block, windows[block])

    return run


def _float_block(end: RowsEnd | None, g: Geometry, filters: Array, y: Array, _step: int) -> _Block:
    rows = y.reshape(len(y), g.rows.size, -1)

    def block(image: int, part: slice, windows: Array) -> None:
        out = rows[image, part]
        np.einsum("hwijr,ijr->hwr", windows, filters, out=out.reshape(len(out), windows.shape[1], -1))
        if end is not None:
            end(out, image)

    return block


def _levels_block(op: OpContext, g: Geometry, filters: Array, y: Array, step: int) -> _Block:
    channels = y.shape[3]
    finish = output_stage(op, channels, step * g.columns.size * channels)
    bias = integer_bias(op, channels)
    sums = op.temporary((step, g.columns.size, channels), filters.dtype)
    acc = op.temporary((step, g.columns.size, channels), np.float64)

    def block(image: int, part: slice, windows: Array) -> None:
        out = y[image, part]
        some, total = sums[: len(out)], acc[: len(out)]
        np.einsum("hwijr,ijr->hwr", windows, filters, out=some.reshape(len(out), windows.shape[1], -1))
        np.add(some, bias, out=total)
        finish(total, out)

    return block


def _run_width(columns: int, channels: int) -> int:
    """How many neighbouring outputs share one inner loop: a divisor of `columns`."""
    fitting = [d for d in range(1, columns + 1) if columns % d == 0 and d * channels <= _RUN_ELEMENTS]
    return max(fitting, default=1)


def _taps(
    op: OpContext, g: Geometry, x: Array, zero: float, channels: int, run_width: int, dtype: Any
) -> _Taps:
    plain = x.dtype == dtype and channels == x.shape[3] and not g.is_padded
    if plain and g.stride_w == 1:
        return lambda image: _windows(g, x[image], run_width, g.dilation_w)
    if g.stride_w == 1:
        return _padded(op, g, x, zero, channels, run_width, dtype)
    return _gathered(op, g, x, zero, channels, run_width, dtype)


def _windows(g: Geometry, rows: Array, run_width: int, tap_step: int) -> Array:
    """Windows over `rows` [H, W, C] whose taps along a row lie `tap_step` pixels apart."""
    row, column, item = rows.strides
    run = run_width * rows.shape[2]
    shape = (g.rows.size, g.columns.size // run_width, g.filter_h, g.filter_w, run)
    strides = (row * g.stride_h, column * run_width, row * g.dilation_h, column * tap_step, item)
    return as_strided(rows, shape, strides, writeable=False)


def _expand(x: Array, channels: int) -> Array:
    """x [N, H, W, C] as [N, H, W, C, m] without a copy."""
    return np.broadcast_to(x[..., None], (*x.shape, channels // x.shape[3]))


def _padded(
    op: OpContext, g: Geometry, x: Array, zero: float, channels: int, run_width: int, dtype: Any
) -> _Taps:
    """The image less its zero point, with a border of zeros."""
    _, height, width, depth = x.shape
    top, left = g.rows.before, g.columns.before
    shape = (height + top + g.rows.after, width + left + g.columns.after)
    padded = op.temporary((*shape, channels), dtype)
    inside = padded[top : top + height, left : left + width].reshape(height, width, depth, -1)
    around = (padded[:top], padded[top + height :], padded[:, :left], padded[:, left + width :])
    edges = [e for e in around if e.size]
    source = _expand(x, channels)
    windows = _windows(g, padded, run_width, g.dilation_w)

    def load(image: int) -> Array:
        for edge in edges:
            edge.fill(0)
        np.subtract(source[image], zero, out=inside)
        return windows

    return load


def _gathered(
    op: OpContext, g: Geometry, x: Array, zero: float, channels: int, run_width: int, dtype: Any
) -> _Taps:
    """With a stride along the row: one plane [H, Wo, C] per tap, so that neighbours are contiguous again."""
    _, height, width, depth = x.shape
    top, columns = g.rows.before, g.columns.size
    rows = height + top + g.rows.after
    planes = op.temporary((g.filter_w, rows, columns, channels), dtype)
    source = _expand(x, channels)
    copies: list[tuple[Array, tuple[slice, slice]]] = []
    fills = [e for e in (planes[:, :top], planes[:, top + height :]) if e.size]
    for tap in range(g.filter_w):
        first = tap * g.dilation_w - g.columns.before
        low = min(columns, max(0, -(first // g.stride_w)))
        high = max(low, min(columns, (width - 1 - first) // g.stride_w + 1))
        inside = planes[tap, top : top + height]
        fills += [e for e in (inside[:, :low], inside[:, high:]) if e.size]
        start = first + low * g.stride_w
        stop = start + (high - low - 1) * g.stride_w + 1
        target = inside[:, low:high].reshape(height, high - low, depth, -1)
        copies.append((target, (slice(None), slice(start, max(start, stop), g.stride_w))))
    plane, row, column, item = planes.strides
    run = run_width * channels
    windows = as_strided(
        planes,
        (g.rows.size, columns // run_width, g.filter_h, g.filter_w, run),
        (row * g.stride_h, column * run_width, row * g.dilation_h, plane, item),
        writeable=False,
    )

    def load(image: int) -> Array:
        for edge in fills:
            edge.fill(0)
        for target, where in copies:
            np.subtract(source[image][where], zero, out=target)
        return windows

    return load
