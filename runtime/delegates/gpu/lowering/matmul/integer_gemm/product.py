"""Convolutions and matrix products of int8 and uint8, four products at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import (
    ROWS,
    SIGN,
    Stage,
    border_bytes,
    bounds,
    stage_of,
    stage_rows,
)
from runtime.model.schema import BuiltinOperator as Op

BYTES_OF_INT = 4
"""Products that one instruction adds to each of its sums."""

_TILES = {1: (14, 12, 8, 4, 2, 1), 2: (12, 10, 7, 4, 2, 1), 3: (8, 7, 4, 2, 1), 4: (6, 5, 4, 2, 1)}
"""Vectors of 16 outputs in a panel → heights of a tile in pixels, the best first where all else is equal.
Chosen: up to 24 sums leave registers of AVX-512 for weights and input; more are kept in memory."""

_TILES_NARROW = {1: (4, 2, 1)}
"""The same where a register holds 8 ints: of 16, sums take eight, both halves of the weights four."""

_BLOCK_TILES = {1: (8, 6, 4, 2, 1), 2: (4, 3, 2, 1)}
"""The same with registers of AVX-512 where blocks of the depth have scales: their sums and those of all
blocks share the registers."""

_BITS = 8
"""Bits of a weight that is not narrower than a byte."""

_PANEL = 0.35
"""What a panel costs beside its vectors, in vectors: the input is spread again for each. Chosen: as many
instructions spread a pixel's bytes as multiply them by one vector of weights, but units of their own run
them. More takes wider panels, of which the last overlaps more of its neighbour."""

_TILE = 0.5
"""What a tile costs beside its pixels, in pixels: the loads of weights. Chosen as `_PANEL` was."""

_FEW_FOURS = 2
"""Most ints of a pixel that are prepared where they are multiplied. Chosen: of more it is cheaper to do so
once for all columns, of fewer the loop around that costs more than it saves."""

_PART = 64
"""Ints of a pixel that the kernel prepares at a time, as it says."""

_KEPT_INTS = 6144
"""Most ints of weights of a product whose units go through all of them for a tile of pixels. Chosen: with the
tile's input they stay in a first-level cache of 32 KiB. Measured on AVX2: 4 to 20 % of a shallow layer."""

_POINT = (1, 1, 1, 1, 0, 0)
"""The steps of a product without a window."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The window and its image; a matrix product is a window over rows of one image each.

    `steps`: strides, dilations and the padding in front, each of height and width.
    """

    images: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    filter_h: int
    filter_w: int
    channels: int
    outputs: int
    steps: tuple[int, ...] = _POINT

    @classmethod
    def of(cls, node: Node, context: spec.Context, source: int, weights: int) -> "Shape":
        """Read the shape of a node on images, or on rows of whole pixels."""
        before, after, filters = context.value(source), context.value(node.outputs[0]), context.value(weights)
        if node.op == Op.FULLY_CONNECTED:
            outputs, depth = filters.shape
            # A row of several pixels has padding between these, so it is read as a window of 1 x span pixels.
            span = depth // before.channels
            return cls(before.elements // depth, 1, span, 1, 1, 1, span, before.channels, outputs)
        outputs, filter_h, filter_w, channels = filters.shape
        if node.op == Op.DEPTHWISE_CONV_2D:
            # The filter is [1, h, w, outputs] here, and [outputs, h, w, channels] otherwise.
            outputs, channels = channels, outputs
        n, in_h, in_w, _ = before.shape
        _, out_h, out_w, _ = after.shape
        names = ("stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left")
        steps = tuple(node.attributes[name] for name in names)
        return cls(n, in_h, in_w, out_h, out_w, filter_h, filter_w, channels, outputs, steps)

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.images * self.out_h * self.out_w

    @property
    def taps(self) -> int:
        """Pixels of a window."""
        return self.filter_h * self.filter_w

    @property
    def is_of_points(self) -> bool:
        """True where output pixel p depends on input pixel p alone."""
        return self.taps == 1 and self.steps == _POINT

    @property
    def parameters(self) -> dict[str, int]:
        """Sizes and steps, as the kernels call them."""
        steps = ("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "PAD_TOP", "PAD_LEFT")
        sizes = ("pixels", "in_h", "in_w", "out_h", "out_w", "filter_h", "filter_w")
        found = {name.upper(): getattr(self, name) for name in sizes}
        return found | dict(zip(steps, self.steps, strict=True))

    @property
    def label(self) -> str:
        """Window and outputs, for profiles."""
        return f"int8 {self.filter_h}x{self.filter_w} {self.out_h}x{self.out_w}x{self.outputs}"

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.pixels * self.outputs * self.taps * self.channels


def bias_of(bias: int | None, context: spec.Context, outputs: int) -> spec.Array:
    """Return the bias, int64 [outputs], zeros if there is none."""
    return (
        np.zeros(outputs, np.int64) if bias is None else context.constant(bias).reshape(-1).astype(np.int64)
    )


@dataclass(frozen=True, slots=True)
class Panels:
    """The outputs' lanes in panels of whole vectors, the pixels in tiles; the last ones overlap neighbours.

    `fours`: ints of a pixel's channels. `bits`: those of a weight, 8 or 4. `blocks`: how many of a pixel's
    channels have scales of their own, 0 for one scale of all.
    """

    width: int
    vectors: int
    tile: int
    fours: int
    bits: int = 8
    blocks: int = 0

    @classmethod
    def of(
        cls, device: Capabilities, outputs: int, pixels: int, channels: int, bits: int = 8, blocks: int = 0
    ) -> "Panels":
        """Choose the panels and the tiles that cost least."""
        width, fours = round_up(outputs), ceil_div(channels, BYTES_OF_INT)
        wide = _BLOCK_TILES if blocks else _TILES
        tiles = wide if device.vector_floats >= LANES else _TILES_NARROW
        counts = [count for count in tiles if count <= width // LANES]
        # Of equal costs the wider panel.
        vectors = min(counts, key=lambda n: (ceil_div(width // LANES, n) * (n + _PANEL), -n))
        heights = [rows for rows in tiles[vectors] if rows <= pixels]
        tile = min(heights, key=lambda rows: ceil_div(pixels, rows) * (rows + _TILE))
        # An int of four-bit weights unpacks into two, so a pixel's ints must come in pairs.
        return cls(width, vectors, tile, fours if bits == 8 else round_up(fours, 2), bits, blocks)

    @property
    def columns(self) -> int:
        """Outputs of a panel."""
        return LANES * self.vectors

    @property
    def starts(self) -> list[int]:
        """The first output of each panel."""
        return [min(start, self.width - self.columns) for start in range(0, self.width, self.columns)]

    @property
    def defines(self) -> dict[str, int]:
        """Defines of the kernel, by which its code differs."""
        return {
            "TILE_M": self.tile,
            "VECTORS": self.vectors,
            "NIBBLES": self.bits < _BITS,
            "BLOCKED": self.blocks > 0,
        }

    def reading(self, device: Capabilities, *, is_of_points: bool, has_sign: bool) -> dict[str, int]:
        """Return the defines by which the input is read; `has_sign`: its levels are of int8.

        The instruction takes bytes without a sign; without it, pairs of shorts are prepared.
        """
        is_ready = device.multiplies_bytes and not has_sign
        is_direct = is_ready or self.blocks > 0 or self.fours <= _FEW_FOURS
        is_shallow = self.fours <= _PART and self.width * self.fours <= _KEPT_INTS
        return {
            "INSTRUCTION": device.multiplies_bytes,
            "POINTS": is_of_points,
            "DIRECT": is_direct,
            "KEPT": is_of_points and is_shallow and not is_direct and not device.multiplies_bytes,
        }

    def parameters(self, shape: Shape) -> dict[str, int]:
        """Return the numbers of panels and tiles, as the kernel calls them."""
        return {
            "TILES": ceil_div(shape.pixels, self.tile),
            "CHANNELS": self.width,
            "DEPTH": self.fours,
            "PANEL_INTS": self._ints(shape.taps),
        }

    def units(self, pixels: int) -> int:
        """Tiles of all panels."""
        return len(self.starts) * ceil_div(pixels, self.tile)

    def lanes(self) -> list[spec.Array]:
        """Return the outputs of each panel."""
        return [np.arange(start, start + self.columns) for start in self.starts]

    def _ints(self, taps: int) -> int:
        """Ints of a panel's weights, and of the scales of their blocks, which are fp16."""
        return self.columns * taps * self.fours * self.bits // _BITS + self.columns * self.blocks // 2

    def weights(
        self, name: str, levels: Callable[[], spec.Array], taps: int, scales: spec.Array | None = None
    ) -> spec.PackedConstant:
        """Return the weights [outputs, taps, channels] as the kernel reads them.

        `scales` [outputs, blocks]: those of the blocks.
        """

        def make() -> spec.Array:
            found = levels()
            wide = np.zeros((self.width, taps, self.fours * BYTES_OF_INT), np.int8)
            wide[: len(found), :, : found.shape[2]] = found
            fours = wide.reshape(self.width, taps * self.fours, BYTES_OF_INT)
            if self.bits < _BITS:
                # The low nibbles hold the weights of one int, the high nibbles those of the next.
                fours = fours[:, ::2] & 15 | fours[:, 1::2] << 4
            panels = np.stack([fours[lanes].transpose(1, 0, 2) for lanes in self.lanes()])
            if scales is None:
                return panels
            halves = np.zeros((self.width, self.blocks), np.float16)
            halves[: len(scales)] = scales
            heads = np.stack([np.ascontiguousarray(halves[lanes].T) for lanes in self.lanes()])
            shape = (len(panels), self.blocks, -1)
            return np.concatenate([heads.view(np.int8).reshape(shape), panels.reshape(shape)], axis=2)

        kind = WeightType.I8 if self.bits == _BITS else WeightType.I4
        size = len(self.starts) * self._ints(taps) * BYTES_OF_INT
        return spec.PackedConstant(name, size, make, ElementType.I8, kind)


def constants_of(
    node: Node, context: spec.Context, s: Shape, panels: Panels, rounding: Stage
) -> tuple[spec.PackedConstant, spec.PackedConstant]:
    """Return the weights of a node in panels, and the rows of its stage for each."""
    _, weights, bias = (*node.inputs, None)[:3]
    (target,), a = node.outputs, node.attributes
    # The input's bytes are of levels and this; weights of uint8 become int8.
    added = SIGN - a["sign"]
    weight_zero = a["filter_zero_point"] - a["sign"]

    def filters() -> spec.Array:
        assert weights is not None
        levels: spec.Array = (context.constant(weights) ^ a["sign"]).view(np.int8)
        if node.op == Op.DEPTHWISE_CONV_2D:
            levels = levels.reshape(s.taps, s.outputs).T
        return levels.reshape(s.outputs, s.taps, s.channels)

    def stage() -> spec.Array:
        sums = (filters().astype(np.int64) - weight_zero).sum(axis=(1, 2))
        offsets = bias_of(bias, context, s.outputs) - (a["in_zero_point"] + added) * sums
        return np.concatenate([stage_rows(rounding, offsets, a, each) for each in panels.lanes()])

    size = len(panels.starts) * panels.columns * ROWS[rounding]
    rows = spec.PackedConstant(f"stage{target}", size, stage, ElementType.I32)
    return panels.weights(f"weights{target}", filters, s.taps), rows


def product(node: Node, context: spec.Context) -> spec.Candidate:
    """One kernel; sums are rounded as LiteRT's kernel of the operator does, once or twice.

    A depthwise convolution of one channel is one of all channels.
    """
    (source, weights, _), (target,), a = node.filtered, node.outputs, node.attributes
    s = Shape.of(node, context, source, weights)
    panels = Panels.of(context.device, s.outputs, s.pixels, s.channels)
    weight_zero = a["filter_zero_point"] - a["sign"]
    rounding = stage_of(a["scales"], context, is_rounded_once=node.op == Op.FULLY_CONNECTED)
    size = round_up(panels.fours * BYTES_OF_INT)
    border, name = border_bytes(a["in_zero_point"], size), f"border{size}_{a['in_zero_point']}"
    if weight_zero:
        # A 1 for each real channel, by which the kernel adds up a window's bytes without padded lanes.
        border = np.concatenate([border, np.arange(size) < s.channels]).astype(np.int8)
        name += f"_of{s.channels}"
    launch = context.launch(
        node,
        spec.function(
            "matmul/integer_gemm/product.cl",
            f"i8_integer_gemm_product__m{panels.tile}n{panels.columns}",
            spec.joined(
                panels.defines,
                panels.reading(context.device, is_of_points=s.is_of_points, has_sign=not a["sign"]),
                {
                    "STAGE": rounding.value,
                    "SIGN": -a["sign"],
                    "CENTRED": weight_zero != 0,
                },
            ),
            **bounds(a),
            **{"WEIGHT_ZERO": weight_zero, "BORDER": size} if weight_zero else {},
            **s.parameters,
            **panels.parameters(s),
            IN_STRIDE=context.layout(source).pixel_stride // BYTES_OF_INT,
            OUT_STRIDE=context.layout(target).pixel_stride,
        ),
        (
            source,
            *constants_of(node, context, s, panels, rounding),
            spec.PackedConstant(name, len(border), lambda: border, ElementType.I8),
            target,
        ),
        panels.units(s.pixels),
        spec.Work(s.label, s.flops, s.images * s.in_h * s.in_w * s.channels + s.pixels * s.outputs),
    )
    return spec.Candidate("panels", (launch,))
