"""Convolutions and matrix products of int8, four products at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import parameters
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import ROWS, Stage, bounds, stage_of, stage_rows
from runtime.delegates.gpu.lowering.spec import (
    Array,
    Candidate,
    Context,
    Instance,
    Launch,
    PackedConstant,
    defines,
)
from runtime.model.schema import BuiltinOperator as Op

_BYTES_OF_INT = 4
"""Products that one instruction adds to each of its sums."""

_TILES = {1: (14, 12, 8, 4, 2, 1), 2: (12, 10, 7, 4, 2, 1), 3: (8, 7, 4, 2, 1), 4: (6, 5, 4, 2, 1)}
"""Vectors of 16 outputs in a panel → heights of a tile in pixels, the best first where all else is equal.
Chosen: up to 24 sums leave registers of AVX-512 for weights and input; more are kept in memory."""

_PANEL = 0.35
"""What a panel costs beside its vectors, in vectors: the input is spread again for each. Chosen: as many
instructions spread a pixel's bytes as multiply them by one vector of weights, but units of their own run
them. More takes wider panels, of which the last overlaps more of its neighbour."""

_TILE = 0.5
"""What a tile costs beside its pixels, in pixels: the loads of weights. Chosen as `_PANEL` was."""

_SIGN = 128
"""What is added to an int8 so that it is a byte without a sign."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The window and its image; a matrix product is a window over rows of one image each."""

    images: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    filter_h: int
    filter_w: int
    channels: int
    outputs: int

    @property
    def pixels(self) -> int:
        return self.images * self.out_h * self.out_w


def _shape(node: Node, context: Context, source: int, weights: int) -> _Shape:
    before, after, filters = context.value(source), context.value(node.outputs[0]), context.value(weights)
    if node.op == Op.FULLY_CONNECTED:
        outputs, depth = filters.shape
        span = depth // before.channels
        rows = before.elements // depth
        return _Shape(rows, 1, span, 1, 1, 1, span, before.channels, outputs)
    outputs, filter_h, filter_w, channels = filters.shape
    if node.op == Op.DEPTHWISE_CONV_2D:
        outputs, channels = channels, outputs
    n, in_h, in_w, _ = before.shape
    _, out_h, out_w, _ = after.shape
    return _Shape(n, in_h, in_w, out_h, out_w, filter_h, filter_w, channels, outputs)


def bias_of(bias: int | None, context: Context, outputs: int) -> Array:
    """Return the bias, int64 [outputs], zeros if there is none."""
    return (
        np.zeros(outputs, np.int64) if bias is None else context.constant(bias).reshape(-1).astype(np.int64)
    )


def _panel_vectors(width: int) -> int:
    """Vectors of 16 outputs in a panel: the count whose panels cost least for so many lanes."""
    vectors = width // LANES
    counts = [count for count in _TILES if count <= vectors]
    return min(counts, key=lambda count: (ceil_div(vectors, count) * (count + _PANEL), -count))


def _tile_height(vectors: int, pixels: int) -> int:
    """Pixels of a tile: the height whose tiles cost least; the last tile overlaps its neighbour."""
    heights = [rows for rows in _TILES[vectors] if rows <= pixels]
    return min(heights, key=lambda rows: ceil_div(pixels, rows) * (rows + _TILE))


def product(node: Node, context: Context) -> Candidate:
    """One kernel; sums are rounded as LiteRT's kernel of the operator does, once or twice.

    A depthwise convolution of one channel is one of all channels.
    """
    source, weights, bias = (*node.inputs, None)[:3]
    (target,), a = node.outputs, node.attributes
    if source is None or weights is None:
        raise ValueError("a product has an input and weights")
    s = _shape(node, context, source, weights)
    width = round_up(s.outputs)
    vectors = _panel_vectors(width)
    columns = LANES * vectors
    # Panels of the output's lanes; the last one overlaps its neighbour where they do not divide.
    starts = [min(start, width - columns) for start in range(0, width, columns)]
    panels, tile = len(starts), _tile_height(vectors, s.pixels)
    taps, depth = s.filter_h * s.filter_w, ceil_div(s.channels, _BYTES_OF_INT)
    bytes_of_pixel = depth * _BYTES_OF_INT
    is_window = node.op != Op.FULLY_CONNECTED
    rounding = stage_of(a["scales"]) if is_window else Stage.DOUBLES

    def filters() -> Array:
        levels = context.constant(weights)
        if node.op == Op.DEPTHWISE_CONV_2D:
            levels = levels.reshape(taps, s.outputs).T
        return levels.reshape(s.outputs, taps, s.channels)

    def packed_weights() -> Array:
        wide = np.zeros((width, taps, bytes_of_pixel), np.int8)
        wide[: s.outputs, :, : s.channels] = filters()
        fours = wide.reshape(width, taps * depth, _BYTES_OF_INT)
        return np.stack([fours[start : start + columns].transpose(1, 0, 2) for start in starts])

    def stage() -> Array:
        sums = filters().astype(np.int64).sum(axis=(1, 2))
        offsets = bias_of(bias, context, s.outputs) - (a["in_zero_point"] + _SIGN) * sums
        lanes = [np.arange(start, start + columns) for start in starts]
        return np.concatenate([stage_rows(rounding, offsets, a, each) for each in lanes])

    border = np.full(round_up(bytes_of_pixel), a["in_zero_point"], np.int8)
    names = ("stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left")
    window = tuple(a[name] for name in names) if is_window else (1, 1, 1, 1, 0, 0)
    is_of_points = s.filter_h == s.filter_w == 1 and window == (1, 1, 1, 1, 0, 0)
    launch = Launch(
        Instance(
            "matmul/integer_gemm/product.cl",
            f"i8_integer_gemm_product__m{tile}n{columns}",
            defines(
                TILE_M=tile,
                VECTORS=vectors,
                INSTRUCTION=context.device.multiplies_bytes,
                STAGE=rounding.value,
                POINTS=is_of_points,
            ),
            parameters(
                **bounds(a),
                **{name.upper(): value for name, value in zip(names, window, strict=True)},
                PIXELS=s.pixels,
                TILES=ceil_div(s.pixels, tile),
                CHANNELS=width,
                DEPTH=depth,
                IN_H=s.in_h,
                IN_W=s.in_w,
                IN_STRIDE=context.layout(source).pixel_stride // _BYTES_OF_INT,
                OUT_H=s.out_h,
                OUT_W=s.out_w,
                OUT_STRIDE=context.layout(target).pixel_stride,
                FILTER_H=s.filter_h,
                FILTER_W=s.filter_w,
            ),
        ),
        (
            source,
            PackedConstant(
                f"weights{target}",
                panels * columns * taps * bytes_of_pixel,
                packed_weights,
                ElementType.I8,
                WeightType.I8,
            ),
            PackedConstant(f"stage{target}", panels * columns * ROWS[rounding], stage, ElementType.I32),
            PackedConstant(
                f"border{len(border)}_{a['in_zero_point']}", len(border), lambda: border, ElementType.I8
            ),
            target,
        ),
        units=panels * ceil_div(s.pixels, tile),
        label=f"{node.op.name} int8 {s.filter_h}x{s.filter_w} {s.out_h}x{s.out_w}x{s.outputs}",
        sources=node.sources,
        flops=2 * s.pixels * s.outputs * taps * s.channels,
        bytes=s.images * s.in_h * s.in_w * s.channels + s.pixels * s.outputs,
    )
    return Candidate("panels", (launch,))
