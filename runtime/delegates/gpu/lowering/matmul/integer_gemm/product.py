"""Convolutions and matrix products of int8, four products at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import parameters
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import bounds, double_rows, fixed_point_rows
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

_TILES = {1: (12, 8, 4, 2, 1), 2: (8, 4, 2, 1), 3: (6, 4, 2, 1), 4: (6, 4, 2, 1)}
"""Vectors of 16 outputs in a panel → heights of a tile in pixels, of which the first that fits is taken.
Chosen: up to 24 sums leave registers of AVX-512 for weights and input; more are kept in memory."""

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
    n, in_h, in_w, _ = before.shape
    _, out_h, out_w, _ = after.shape
    return _Shape(n, in_h, in_w, out_h, out_w, filter_h, filter_w, channels, outputs)


def bias_of(bias: int | None, context: Context, outputs: int) -> Array:
    """Return the bias, int64 [outputs], zeros if there is none."""
    return (
        np.zeros(outputs, np.int64) if bias is None else context.constant(bias).reshape(-1).astype(np.int64)
    )


def product(node: Node, context: Context) -> Candidate:
    """One kernel; sums are rounded as LiteRT's kernel of the operator does, once or twice."""
    source, weights, bias = (*node.inputs, None)[:3]
    (target,), a = node.outputs, node.attributes
    if source is None or weights is None:
        raise ValueError("a product has an input and weights")
    s = _shape(node, context, source, weights)
    lanes, width = round_up(s.channels), round_up(s.outputs)
    vectors = min(4, width // LANES)
    columns = LANES * vectors
    panels = ceil_div(s.outputs, columns)
    tile = next(rows for rows in _TILES[vectors] if rows <= s.pixels)
    taps, depth = s.filter_h * s.filter_w, lanes // _BYTES_OF_INT
    once = node.op == Op.FULLY_CONNECTED

    def filters() -> Array:
        return context.constant(weights).reshape(s.outputs, taps, s.channels)

    def packed_weights() -> Array:
        wide = np.zeros((panels * columns, taps, lanes), np.int8)
        wide[: s.outputs, :, : s.channels] = filters()
        fours = wide.reshape(panels, columns, taps * depth, _BYTES_OF_INT)
        return fours.transpose(0, 2, 1, 3)

    def stage() -> Array:
        sums = filters().astype(np.int64).sum(axis=(1, 2))
        offsets = bias_of(bias, context, s.outputs) - (a["in_zero_point"] + _SIGN) * sums
        rows = (double_rows if once else fixed_point_rows)(offsets, a["scales"], panels * columns)
        return (
            rows.reshape(len(rows), panels, columns).transpose(1, 0, 2)
            if not once
            else _by_panel(rows, columns)
        )

    border = np.full(lanes, a["in_zero_point"], np.int8)
    window = (
        (1, 1, 1, 1, 0, 0)
        if once
        else tuple(
            a[name] for name in ("stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left")
        )
    )
    names = ("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_TOP", "PAD_LEFT")
    launch = Launch(
        Instance(
            "matmul/integer_gemm/product.cl",
            f"i8_integer_gemm_product__m{tile}n{columns}",
            defines(TILE_M=tile, VECTORS=vectors, INSTRUCTION=context.device.multiplies_bytes, ONCE=once),
            parameters(
                **bounds(a),
                **dict(zip(names, window, strict=True)),
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
                panels * columns * taps * lanes,
                packed_weights,
                ElementType.I8,
                WeightType.I8,
            ),
            PackedConstant(f"stage{target}", panels * columns * (3 if once else 4), stage, ElementType.I32),
            PackedConstant(f"border{lanes}_{a['in_zero_point']}", lanes, lambda: border, ElementType.I8),
            target,
        ),
        units=panels * ceil_div(s.pixels, tile),
        label=f"{node.op.name} int8 {s.filter_h}x{s.filter_w} {s.out_h}x{s.out_w}x{s.outputs}",
        sources=node.sources,
        flops=2 * s.pixels * s.outputs * taps * s.channels,
        bytes=s.images * s.in_h * s.in_w * s.channels + s.pixels * s.outputs,
    )
    return Candidate("panels", (launch,))


def _by_panel(rows: Array, columns: int) -> Array:
    """Rows of offsets and of scales, whose bits take two ints each, panel by panel."""
    offsets = rows[0].reshape(-1, columns)
    scales = rows[1:].reshape(-1, 2 * columns)
    return np.concatenate([offsets, scales], axis=1)
