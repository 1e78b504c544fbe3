"""CONV_2D: windows gathered into a bounded tile of columns (or a view, for 1x1), then one GEMM per tile.

x [N, H, W, Ci], filter [Co, kh, kw, Ci / groups], bias [Co] -> [N, Ho, Wo, Co]. float32; int8, uint8 and
int16 exactly as LiteRT's `reference/integer_ops/conv.h` and `reference/conv.h`; float activations with int8
or int4 filters (hybrid) as `HybridConvPerChannel` of `reference/conv.h`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from runtime.ops.matmul import hybrid, integer_gemm
from runtime.ops.matmul.level_matrix import LevelMatrix, Product, plain_product, stored_filter
from runtime.ops.matmul.windows import Geometry, Tile, geometry, tiles
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.parallel import lane_count, together
from runtime.ops.support.quantization import float_activation_range
from runtime.ops.support.shapes import image_shape, require_rank

RowsEnd: TypeAlias = Callable[[Array, int], None]
"""Finishes output rows [rows, Wo * Co] of an image: scale, bias, activation."""


def check_bias(op: OpContext, channels: int, i: int = 2) -> None:
    """Raise `ShapeError` unless input `i` is absent or holds one value per channel."""
    bias = op.optional(i)
    if bias is not None and bias.elements != channels:
        raise op.error(f"bias of shape {list(bias.shape)} for {channels} output channels")


def conv_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, Ho, Wo, Co]. Raises `ShapeError` where channels do not divide into groups."""
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


@operator(
    Op.CONV_2D,
    max_version=8,
    infer=conv_shape,
    types=(TensorType.FLOAT32, *integer_gemm.LEVELS),
    note="float32 with float32, int8 or int4 filters; int8 and int16 with int8 or int4 filters",
)
def conv(op: OpContext) -> Kernel:
    """CONV_2D: cross-correlation, bias, fused activation; the filter's depth implies the groups."""
    kind = op.input().type
    if kind is not TensorType.FLOAT32:
        integer_gemm.require_filter(op, kind)
        return _conv_levels(op, kind)
    if hybrid.is_hybrid(op):
        return _conv_hybrid(op)
    op.require(TensorType.FLOAT32, i=1)
    width = op.output().shape[2]
    return _sums(op, op.read(0), op.read(1), plain_end(op, width))


def _conv_hybrid(op: OpContext) -> Kernel:
    """Return the hybrid kernel: each image is quantised by itself, then convolved as floats."""
    x, channels = op.read(0), op.input(1).shape[0]
    quantizer = hybrid.RowQuantizer(op, x.reshape(len(x), -1), asymmetric=hybrid.differs_by_channel(op))
    weights, zero = hybrid.hybrid_filter(op)
    end = scaled_end(op, quantizer.scales, hybrid.channel_scales(op, channels), op.output().shape[2])
    run_sums = _sums(op, quantizer.levels.reshape(x.shape), weights, end, zero)
    return in_turn(quantizer, run_sums)


def float_end(op: OpContext, bias_input: int = 2) -> Callable[[Array], None]:
    """Return what adds the bias to [..., Co], maybe a computed one, and activates, in place."""
    op.require_output(TensorType.FLOAT32)
    bias = None if op.optional(bias_input) is None else op.read(bias_input).reshape(-1)
    clamp = float_activation_range(op.activation())

    def end(rows: Array) -> None:
        if bias is not None:
            np.add(rows, bias, out=rows)
        clamp_floats(rows, clamp)

    return end


def plain_end(op: OpContext, repeats: int, bias_input: int = 2) -> RowsEnd:
    """Return what adds the bias to float sums in rows of `repeats` pixels, and applies the activation."""
    op.require_output(TensorType.FLOAT32)
    bias = bias_rows(op, repeats, bias_input)
    clamp = float_activation_range(op.activation())

    def end(rows: Array, _image: int) -> None:
        if bias is not None:
            np.add(rows, bias, out=rows)
        clamp_floats(rows, clamp)

    return end


def scaled_end(
    op: OpContext, image_scales: Array, scales: Array, repeats: int, bias_input: int = 2
) -> RowsEnd:
    """Return `plain_end` for sums of levels, which it first scales by image and output channel.

    The factors multiply in the order of the reference, whose roundings follow from it.
    """
    factors = np.tile(scales, repeats)
    rest = plain_end(op, repeats, bias_input)
    one_factor = not hybrid.differs_by_channel(op)

    def end(rows: Array, image: int) -> None:
        if one_factor:
            np.multiply(rows, scales[0] * image_scales[image], out=rows)
        else:
            np.multiply(rows, factors, out=rows)
            np.multiply(rows, image_scales[image], out=rows)
        rest(rows, image)

    return end


def bias_rows(op: OpContext, repeats: int, i: int = 2) -> Array | None:
    """Return the bias repeated for a row of `repeats` pixels, so that adding it has a long inner loop."""
    if op.optional(i) is None:
        return None
    return np.tile(op.constant(i, "bias").reshape(-1), repeats)


def _sums(op: OpContext, x: Array, weights: Array, end: RowsEnd, zero: int = 0) -> Kernel:
    """Return a kernel that writes sums of products of float32 `x` to output 0, row block by row block.

    `weights` are float32, or levels whose 0 is `zero`; `end` finishes each block while it is cached.
    """
    y = op.write()
    out_channels, filter_h, filter_w, depth = weights.shape
    g = geometry(op, filter_h, filter_w)
    groups = x.shape[3] // depth
    if groups > 1:
        floats = weights if weights.dtype == np.float32 else weights.astype(np.float32) - np.float32(zero)
        return _grouped_sums(op, g, x, floats, end)
    rows = weights.reshape(out_channels, -1)
    levels = None if weights.dtype == np.float32 else LevelMatrix(op, rows, zero, np.float32)
    lanes = lane_count(op, y.size * weights[0].size)
    plan = tiles(op, g, x, 0.0, 4 * out_channels, lanes=lanes, filter_bytes=4 * weights.size)
    # One for each lane: where a filter is widened piece by piece, the product owns the buffer of the pieces.
    products = (plain_product(rows.T) if levels is None else levels.product() for _ in plan)
    return together([_sums_lane(*lane, y, end) for lane in zip(plan, products, strict=True)])


def _sums_lane(lane: Sequence[Tile], product: Product, y: Array, end: RowsEnd) -> Kernel:
    """Return one thread's kernel of float sums; a product writes to the output itself, without a copy."""
    out_channels = y.shape[3]
    steps = [
        (t, y[t.image, t.start : t.stop].reshape(-1, out_channels),
         y[t.image, t.start : t.stop].reshape(t.stop - t.start, -1))
        for t in lane
    ]  # fmt: skip

    def run() -> None:
        for tile, out, rows in steps:
            for target, source in tile.copies:
                np.copyto(target, source)
            product(tile.columns, out)
            end(rows, tile.image)

    return run


def _grouped_sums(op: OpContext, g: Geometry, x: Array, weights: Array, end: RowsEnd) -> Kernel:
    y = op.write()
    out_channels, _, _, depth = weights.shape
    groups = x.shape[3] // depth
    matrices = [m.T for m in weights.reshape(groups, out_channels // groups, -1)]
    lanes = lane_count(op, y.size * weights[0].size)
    plan = tiles(op, g, x, 0.0, 4 * out_channels, lanes=lanes)
    return together([_grouped_lane(op, g, lane, y, matrices, end) for lane in plan])


def _grouped_lane(
    op: OpContext, g: Geometry, lane: Sequence[Tile], y: Array, matrices: list[Array], end: RowsEnd
) -> Kernel:
    """Return one thread's kernel of a grouped convolution.

    The columns of one group after the other are copied together, [M, taps, depth]: within a pixel's channels
    they are strided, and no matrix of BLAS has two strides along a row.
    """
    groups, taps = len(matrices), g.filter_h * g.filter_w
    depth = len(matrices[0]) // taps
    gathered = op.temporary((max(len(t.columns) for t in lane), taps, depth))
    steps = []
    for tile in lane:
        target, count = y[tile.image, tile.start : tile.stop], len(tile.columns)
        columns = tile.columns.reshape(count, taps, groups, depth)
        steps.append((tile, columns, target.reshape(count, groups, -1), target.reshape(len(target), -1)))

    def run() -> None:
        for tile, columns, out, rows in steps:
            for target, source in tile.copies:
                np.copyto(target, source)
            some = gathered[: len(columns)]
            for group, matrix in enumerate(matrices):
                np.copyto(some, columns[:, :, group])
                np.matmul(some.reshape(len(some), -1), matrix, out=out[:, group])
            end(rows, tile.image)

    return run


def _conv_levels(op: OpContext, kind: TensorType) -> Kernel:
    """Return the kernel of quantised activations and filters, whose sums are exact integers.

    Padding is the input's zero point, which stands for real 0, so that every window has the same correction.
    """
    x, y = op.read(0), op.write()
    weights, zero = stored_filter(op)
    out_channels, filter_h, filter_w, depth = weights.shape
    groups = x.shape[3] // depth
    in_zero = integer_gemm.input_zero_point(op)
    bias = integer_gemm.integer_bias(op, out_channels)
    each = out_channels // groups
    gemms = [
        integer_gemm.ExactGemm(op, m, zero, kind, in_zero, bias[i * each : (i + 1) * each])
        for i, m in enumerate(weights.reshape(groups, each, -1))
    ]
    dtype = np.float64 if any(gemm.dtype is np.float64 for gemm in gemms) else np.float32
    g = geometry(op, filter_h, filter_w)
    lanes = lane_count(op, y.size * weights[0].size)
    # 20 bytes for each output: a partial sum in float32, and "total" and "part" in float64.
    plan = tiles(op, g, x, float(in_zero), 20 * out_channels, dtype, lanes, 4 * weights.size)
    return together([_levels_lane(op, g, lane, y, gemms, dtype) for lane in plan])


def _levels_lane(
    op: OpContext,
    g: Geometry,
    lane: Sequence[Tile],
    y: Array,
    gemms: list[integer_gemm.ExactGemm],
    dtype: Any,
) -> Kernel:
    """Return one thread's kernel: tile by tile the columns, the product, and the way to output levels."""
    groups, out_channels, taps = len(gemms), y.shape[3], g.filter_h * g.filter_w
    each = out_channels // groups
    most = max(len(t.columns) for t in lane)
    finish = integer_gemm.output_stage(
        op,
        out_channels,
        most * out_channels,
        offset=np.concatenate([gemm.offset for gemm in gemms]),
        limit=max(gemm.limit for gemm in gemms),
        width=g.columns.size,
    )
    partial = op.temporary((most, each), dtype)
    total = op.temporary((most, groups, each), np.float64)
    part = op.temporary((most, each), np.float64)
    depth = lane[0].columns.shape[1] // taps // groups
    gathered = op.temporary((most, taps, depth), dtype) if groups > 1 else None
    products = [gemm.lane() for gemm in gemms]

    def run() -> None:
        for tile in lane:
            for target, source in tile.copies:
                np.copyto(target, source)
            count = len(tile.columns)
            if gathered is None:
                sums = products[0](tile.columns, partial[:count], total[:count, 0])
            else:
                sums = total[:count]
                columns = tile.columns.reshape(count, taps, groups, depth)
                for group, product in enumerate(products):
                    np.copyto(gathered[:count], columns[:, :, group])
                    # The result lies in one of the last two: in `part` where the product is made in parts.
                    some = product(gathered[:count].reshape(count, -1), partial[:count], part[:count])
                    np.copyto(sums[:, group], some)
            out = y[tile.image, tile.start : tile.stop].reshape(count, out_channels)
            finish(sums.reshape(count, out_channels), out)

    return run
