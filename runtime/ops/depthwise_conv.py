"""DEPTHWISE_CONV_2D: each channel has its own filter; a sum over the taps of shifted views.

x [N, H, W, C], filter [1, kh, kw, C * m], bias [C * m] -> [N, Ho, Wo, C * m]; output channel c * m + j reads
input channel c. float32, or int8 exactly as `reference/integer_ops/depthwise_conv.h`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.conv import Geometry, bias_rows, check_bias, geometry, int8_bias, int8_requantizer
from runtime.ops.shapes import image_shape, require_rank
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.quantization import float_activation_range

_RUN_ELEMENTS = 4096
_BLOCK_BYTES = 256 << 10
_EXACT_TAPS = 512


def depthwise_shape(op: OpContext) -> tuple[Shape, ...]:
    """[N, Ho, Wo, C * m]. Raises `ShapeError` where the filter is no multiple of the channels."""
    n, _, _, channels = image_shape(op)
    first, filter_h, filter_w, out_channels = require_rank(op, 1, 4)
    if first != 1 or channels < 1 or out_channels % channels:
        raise op.error(f"filter of shape {list(op.input(1).shape)} for {channels} input channels")
    check_bias(op, out_channels)
    g = geometry(op, filter_h, filter_w)
    return ((n, g.rows.size, g.columns.size, out_channels),)


# Brings one image into windows [Ho, Wo / run, kh, kw, run * C] of float32.
_Taps = Callable[[int], Array]


@operator(BuiltinOperator.DEPTHWISE_CONV_2D, max_version=7, infer=depthwise_shape)
def depthwise_conv(op: OpContext) -> Kernel:
    """Sum over taps, bias, fused activation."""
    is_int8 = op.require(TensorType.FLOAT32, TensorType.INT8) is TensorType.INT8
    op.require_same_type(0, 1)
    x, y = op.read(0), op.write()
    weights = op.constant(1, "filter")
    _, filter_h, filter_w, channels = weights.shape
    g = geometry(op, filter_h, filter_w)
    run_width = _run_width(g.columns.size, channels)
    taps = _taps(op, g, x, channels, run_width)
    filters = np.tile(weights[0].astype(np.float32, copy=False), (1, 1, run_width))
    step = max(1, _BLOCK_BYTES // max(1, 4 * g.columns.size * channels))
    blocks = [slice(i, min(i + step, g.rows.size)) for i in range(0, g.rows.size, step)]
    if y.size == 0:
        return lambda: None
    end = _int8_block(op, g, y, step) if is_int8 else _float_block(op, g, y)

    def run() -> None:
        for image in range(len(x)):
            windows = taps(image)
            for block in blocks:
                end(image, block, windows[block], filters)

    return run


_Block = Callable[[int, slice, Array, Array], Any]


def _float_block(op: OpContext, g: Geometry, y: Array) -> _Block:
    clamp = float_activation_range(op.activation())
    bias = bias_rows(op, g.columns.size)
    rows = y.reshape(len(y), g.rows.size, -1)

    def block(image: int, part: slice, windows: Array, filters: Array) -> None:
        out = rows[image, part]
        np.einsum("hwijr,ijr->hwr", windows, filters, out=out.reshape(len(out), windows.shape[1], -1))
        if bias is not None:
            np.add(out, bias, out=out)
        if clamp is not None:
            np.clip(out, *clamp, out=out)

    return block


def _int8_block(op: OpContext, g: Geometry, y: Array, step: int) -> _Block:
    if g.filter_h * g.filter_w > _EXACT_TAPS:
        raise op.unsupported(f"int8 filter of more than {_EXACT_TAPS} taps")
    channels = y.shape[3]
    requantize = int8_requantizer(op, channels, step * g.columns.size * channels)
    bias = int8_bias(op, channels)
    sums = op.temporary((step, g.columns.size, channels))
    acc = op.temporary((step, g.columns.size, channels), np.float64)

    def block(image: int, part: slice, windows: Array, filters: Array) -> None:
        out = y[image, part]
        partial, total = sums[: len(out)], acc[: len(out)]
        np.einsum("hwijr,ijr->hwr", windows, filters, out=partial.reshape(len(out), windows.shape[1], -1))
        np.add(partial, bias, out=total)
        requantize(total, out)

    return block


def _run_width(columns: int, channels: int) -> int:
    """How many neighbouring outputs share one inner loop: a divisor of `columns`."""
    fitting = [d for d in range(1, columns + 1) if columns % d == 0 and d * channels <= _RUN_ELEMENTS]
    return max(fitting, default=1)


def _taps(op: OpContext, g: Geometry, x: Array, channels: int, run_width: int) -> _Taps:
    plain = x.dtype == np.float32 and channels == x.shape[3] and not g.is_padded
    if plain and g.stride_w == 1:
        return lambda image: _windows(g, x[image], run_width, g.dilation_w)
    if g.stride_w == 1:
        return _padded(op, g, x, channels, run_width)
    return _gathered(op, g, x, channels, run_width)


def _windows(g: Geometry, rows: Array, run_width: int, tap_step: int) -> Array:
    """Windows over `rows` [H, W, C] whose taps along a row lie `tap_step` pixels apart."""
    row, column, item = rows.strides
    run = run_width * rows.shape[2]
    shape = (g.rows.size, g.columns.size // run_width, g.filter_h, g.filter_w, run)
    strides = (row * g.stride_h, column * run_width, row * g.dilation_h, column * tap_step, item)
    return as_strided(rows, shape, strides, writeable=False)


def _zero(op: OpContext, x: Array) -> np.float32:
    """The level of a real zero in `x`."""
    return np.float32(0 if x.dtype == np.float32 else op.scale_and_zero_point(op.input(0))[1])


def _expand(x: Array, channels: int) -> Array:
    """x [N, H, W, C] as [N, H, W, C, m] without a copy."""
    return np.broadcast_to(x[..., None], (*x.shape, channels // x.shape[3]))


def _padded(op: OpContext, g: Geometry, x: Array, channels: int, run_width: int) -> _Taps:
    """The image with its border of zeros, as float32."""
    _, height, width, depth = x.shape
    top, left = g.rows.before, g.columns.before
    shape = (height + top + g.rows.after, width + left + g.columns.after)
    padded = op.temporary((*shape, channels))
    inside = padded[top : top + height, left : left + width].reshape(height, width, depth, -1)
    around = (padded[:top], padded[top + height :], padded[:, :left], padded[:, left + width :])
    edges = [e for e in around if e.size]
    source, zero = _expand(x, channels), _zero(op, x)
    windows = _windows(g, padded, run_width, g.dilation_w)

    def load(image: int) -> Array:
        for edge in edges:
            edge.fill(0)
        np.subtract(source[image], zero, out=inside)
        return windows

    return load


def _gathered(op: OpContext, g: Geometry, x: Array, channels: int, run_width: int) -> _Taps:
    """With a stride along the row: one plane [H, Wo, C] per tap, so that neighbours are contiguous again."""
    _, height, width, depth = x.shape
    top, columns = g.rows.before, g.columns.size
    rows = height + top + g.rows.after
    planes = op.temporary((g.filter_w, rows, columns, channels))
    source, zero = _expand(x, channels), _zero(op, x)
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
