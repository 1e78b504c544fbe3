"""Depthwise convolutions of int8 and uint8."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import parameters
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import BYTES_OF_INT, bias_of
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import (
    ROWS,
    SIGN,
    Stage,
    border_bytes,
    bounds,
    stage_of,
    stage_rows,
)

_TILES = (8, 7, 4, 2, 1)
"""Widths of a tile in pixels, the best first where all else is equal. Chosen: with the weights of a row of
taps, so many sums stay in the registers of AVX-512."""

_COLUMN_TILES = (7, 6, 5, 4, 3, 2, 1)
"""The same of the kernel that takes four rows at a time, whose sums are four vectors of each pixel."""

_BLOCK = 64
"""Channels that this kernel takes side by side, bytes of a vector."""

_MOST_WORK = 1.34
"""Most channels that blocks compute, over those that there are: with more overlap the other kernel
is faster. Measured."""

_TILE = 1.0
"""What a tile costs beside its pixels, in pixels: the addresses of its inputs. Chosen."""

_MOST_TAPS = 49
"""Most taps whose loops are unrolled; larger windows would take long to compile."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The output's channels, padded, and the window."""

    width: int
    channels: int
    filter_h: int
    filter_w: int
    multiplier: int

    @property
    def taps(self) -> int:
        return self.filter_h * self.filter_w


def depthwise(node: Node, context: spec.Context) -> spec.Candidate:
    """One kernel, a unit for each output row."""
    (source, weights, bias), (target,), a = node.filtered, node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    n, in_h, in_w, in_channels = before.shape
    _, out_h, out_w, channels = after.shape
    _, filter_h, filter_w, _ = context.value(weights).shape
    s = _Shape(round_up(channels), channels, filter_h, filter_w, channels // in_channels)
    name, way = _way(s, a, context)
    instance, constants = way(s, node, context, weights, bias)
    window = ("stride_h", "dilation_h", "pad_top", "pad_left")
    values = parameters(
        **bounds(a),
        **{name.upper(): a[name] for name in window},
        CHANNELS=s.width,
        IN_H=in_h,
        IN_W=in_w,
        IN_STRIDE=context.layout(source).pixel_stride,
        OUT_H=out_h,
        OUT_W=out_w,
        OUT_STRIDE=context.layout(target).pixel_stride,
        **dict(instance.parameters),
    )
    note = f"int8 {filter_h}x{filter_w} {out_h}x{out_w}x{channels}"
    launch = context.launch(
        node,
        spec.Instance(instance.source, instance.name, instance.defines, values),
        (source, *constants, target),
        n * out_h,
        spec.Work(note, 2 * after.elements * s.taps, before.elements + after.elements),
    )
    return spec.Candidate(name, (launch,))


_Made: TypeAlias = tuple[spec.Instance, tuple[spec.Argument, ...]]
_Way: TypeAlias = Callable[[_Shape, Node, spec.Context, int, int | None], _Made]


def _way(s: _Shape, attributes: Mapping[str, Any], context: spec.Context) -> tuple[str, _Way]:
    """Return the kernel and its name: the fast ones are for windows whose neighbours share inputs.

    Weights of uint8 less their zero point have nine bits, which the shorts of pairs hold.
    """
    stride, dilation = attributes["stride_w"], attributes["dilation_w"]
    if s.multiplier > 1 or s.taps > _MOST_TAPS or stride > 2 or (stride == 2 and dilation > 1):
        return "rows", _by_taps
    work = ceil_div(s.width, _BLOCK) * _BLOCK
    in_columns = dilation == 1 and not attributes["sign"] and s.width >= _BLOCK
    in_columns = in_columns and work <= _MOST_WORK * s.width
    return (
        ("columns", _in_columns) if in_columns and context.device.multiplies_bytes else ("pairs", _in_pairs)
    )


def _tile(row: int, widths: tuple[int, ...]) -> int:
    """Return the width of the tiles by which a row of so many pixels costs least."""
    return min((one for one in widths if one <= row), key=lambda one: ceil_div(row, one) * (one + _TILE))


def _border(s: _Shape, zero_point: int) -> spec.PackedConstant:
    """Return a pixel outside of the image."""
    name = f"border{s.width}_{zero_point}"
    return spec.PackedConstant(name, s.width, lambda: border_bytes(zero_point, s.width), ElementType.I8)


def _in_columns(s: _Shape, node: Node, context: spec.Context, weights: int, bias: int | None) -> _Made:
    """Four rows at a time, 64 channels side by side."""
    (target,), a = node.outputs, node.attributes
    tile, fours = _tile(context.value(target).shape[2], _COLUMN_TILES), ceil_div(s.filter_h, BYTES_OF_INT)
    rounding = stage_of(a["scales"], context)
    # The order in which two rounds of unpacking leave the channels.
    order = np.arange(_BLOCK).reshape(4, 4, 4).swapaxes(0, 1).reshape(-1)
    blocks = [min(start, s.width - _BLOCK) + order for start in range(0, s.width, _BLOCK)]

    def filters() -> spec.Array:
        return context.constant(weights).reshape(s.filter_h, s.filter_w, s.channels)

    def packed_weights() -> spec.Array:
        missing = ((0, fours * BYTES_OF_INT - s.filter_h), (0, 0), (0, s.width - s.channels))
        rows = np.pad(filters(), missing).reshape(fours, BYTES_OF_INT, s.filter_w, s.width)
        turned = rows.transpose(0, 2, 3, 1)
        # Four vertically adjacent taps become one int.
        return np.ascontiguousarray(np.stack([turned[:, :, lanes] for lanes in blocks])).view(np.int32)

    def stage() -> spec.Array:
        sums = filters().astype(np.int64).sum(axis=(0, 1))
        # Takes off what the input's zero point, and the SIGN that the kernel adds, bring into the sums.
        offsets = bias_of(bias, context, s.channels) - (a["in_zero_point"] + SIGN) * sums
        return np.concatenate([stage_rows(rounding, offsets, a, lanes) for lanes in blocks])

    stride, count = a["stride_w"], len(blocks) * _BLOCK
    instance = spec.function(
        "matmul/integer_gemm/depthwise_columns.cl",
        f"i8_integer_gemm_depthwise_columns__{s.filter_h}x{s.filter_w}s{stride}n{tile}",
        {
            "TILE": tile,
            "FILTER_H": s.filter_h,
            "FILTER_W": s.filter_w,
            "STRIDE_W": stride,
            "STAGE": rounding.value,
        },
        BLOCKS=len(blocks),
    )
    size = count * fours * s.filter_w
    return instance, (
        spec.PackedConstant(f"weights{target}", size, packed_weights, ElementType.I32, WeightType.I8),
        spec.PackedConstant(f"stage{target}", ROWS[rounding] * count, stage, ElementType.I32),
        _border(s, a["in_zero_point"]),
    )


def _in_pairs(s: _Shape, node: Node, context: spec.Context, weights: int, bias: int | None) -> _Made:
    """Two taps at a time."""
    (target,), a = node.outputs, node.attributes
    out_w, stride = context.value(target).shape[2], a["stride_w"]
    # The kernel treats pixels that lie `dilation_w` apart as a row of their own.
    tile = _tile(max(1, out_w // a["dilation_w"]), _TILES)
    rounding = stage_of(a["scales"], context)
    # With stride 1 a window may begin at the second pixel of a pair, which takes weights shifted by one tap.
    shifts = (0, 1) if stride == 1 else (0,)
    ints = sum(ceil_div(s.filter_w + shift, 2) for shift in shifts)

    def filters() -> spec.Array:
        levels = context.constant(weights).reshape(s.filter_h, s.filter_w, s.channels)
        centred: spec.Array = levels.astype(np.int16) - a["filter_zero_point"]
        return centred

    def packed_weights() -> spec.Array:
        wide = np.pad(filters(), ((0, 0), (0, 0), (0, s.width - s.channels)))
        pairs = [_pairs(wide, shift) for shift in shifts]
        rows = np.concatenate(pairs, axis=1).reshape(s.filter_h, ints, s.width // LANES, LANES)
        return rows.transpose(2, 0, 1, 3)

    def stage() -> spec.Array:
        sums = filters().astype(np.int64).sum(axis=(0, 1))
        offsets = bias_of(bias, context, s.channels) - a["in_zero_point"] * sums
        return stage_rows(rounding, offsets, a, np.arange(s.width))

    instance = spec.function(
        "matmul/integer_gemm/depthwise_pairs.cl",
        f"i8_integer_gemm_depthwise_pairs__{s.filter_h}x{s.filter_w}s{stride}n{tile}",
        {
            "TILE": tile,
            "FILTER_H": s.filter_h,
            "FILTER_W": s.filter_w,
            "STRIDE_W": stride,
            "INSTRUCTION": context.device.multiplies_bytes,
            "STAGE": rounding.value,
            "SIGN": -a["sign"],
        },
        DILATION_W=a["dilation_w"],
    )
    return instance, (
        spec.PackedConstant(
            f"weights{target}", s.width * s.filter_h * ints, packed_weights, ElementType.I32, WeightType.I8
        ),
        spec.PackedConstant(f"stage{target}", ROWS[rounding] * s.width, stage, ElementType.I32),
        _border(s, a["in_zero_point"]),
    )


def _pairs(rows: spec.Array, shift: int) -> spec.Array:
    """Rows of taps, int16 [rows, taps, channels], behind `shift` zeros, as ints of two neighbours."""
    height, taps, channels = rows.shape
    missing = (taps + shift) % 2
    even = np.pad(rows, ((0, 0), (shift, missing), (0, 0)))
    pairs = even.reshape(height, -1, 2, channels).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(pairs).view(np.int32)[..., 0]


def _by_taps(s: _Shape, node: Node, context: spec.Context, weights: int, bias: int | None) -> _Made:
    """Tap by tap, of any window."""
    (target,), a = node.outputs, node.attributes
    in_floats = stage_of(a["scales"], context) is Stage.FLOATS
    # This kernel does not implement FACTORS; SHIFTS gives the same bits.
    rounding = Stage.FLOATS if in_floats else Stage.SHIFTS

    def filters() -> spec.Array:
        levels = context.constant(weights).view(np.int8).reshape(s.taps, s.channels)
        return np.pad(levels, ((0, 0), (0, s.width - s.channels)))

    def stage() -> spec.Array:
        return stage_rows(rounding, bias_of(bias, context, s.channels), a, np.arange(s.width))

    instance = spec.function(
        "matmul/integer_gemm/depthwise.cl",
        "i8_integer_gemm_depthwise",
        {
            "MULTIPLIER": s.multiplier,
            "IN_FLOATS": in_floats,
            "T": context.value(weights).type.opencl,
            "SIGN": -a["sign"],
        },
        IN_ZERO_POINT=a["in_zero_point"],
        WEIGHT_ZERO=a["filter_zero_point"],
        FILTER_H=s.filter_h,
        FILTER_W=s.filter_w,
        STRIDE_W=a["stride_w"],
        DILATION_W=a["dilation_w"],
    )
    return instance, (
        spec.PackedConstant(f"weights{target}", s.taps * s.width, filters, ElementType.I8, WeightType.I8),
        spec.PackedConstant(f"stage{target}", ROWS[rounding] * s.width, stage, ElementType.I32),
    )
