"""Convolutions with any window as implicit products: no unfolded copy of the input."""

import numpy as np

from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import QUAD, strided
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, best_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import filter_matrix, grouped_depth, grouped_panels


def direct_candidates(node: Node, context: spec.Context, shape: ConvShape) -> list[spec.Candidate]:
    """Return the cheapest tile, and one of another width if the cost model sees no difference."""
    depth = shape.filter_h * shape.filter_w * shape.group_in
    tiles = best_tiles(shape.pixels, shape.out_channels, depth, context.device)
    return [direct(node, context, shape, tile) for tile in tiles]


def direct(node: Node, context: spec.Context, shape: ConvShape, tile: Tile) -> spec.Candidate:
    """One launch; a panel reads all channels of the groups that its outputs belong to.

    Pixels outside of the image are read from a row of zeros, so that the inner loop needs no bounds checks.
    """
    s, width = shape, tile.columns
    depth = grouped_depth(width, s.out_channels, s.group_in, s.group_out, s.in_channels)
    count = ceil_div(s.out_channels, width)
    rows = s.filter_h * s.filter_w * depth
    weights = s.weights.panels(
        f"weights{s.target}",
        count,
        rows,
        width,
        lambda codes: grouped_panels(codes, width, s.in_channels, depth),
    )

    # Long enough for the kernel to step through the zeros as it steps through a pixel's channels.
    span = depth * s.in_layout.channel_stride
    zeros = spec.PackedConstant("zeros", span, lambda: np.zeros(span, np.float32))
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/direct.cl",
            spec.instance_name("conv_direct", tile.name, s.weights.type),
            {"TILE_M": tile.rows, "TILE_N": width, "WEIGHT": s.weights.type.value},
            **s.image,
            **s.taps,
            **tile.order(s.pixels, s.out_channels, weights.bytes),
            M=s.pixels,
            K=depth,
            CHANNELS=round_up(s.out_channels),
            IN_CHANNELS=s.in_channels,
            IN_STEP=s.in_layout.channel_stride,
            GROUP_IN=s.group_in,
            GROUP_OUT=s.group_out,
        ),
        (s.source, weights, zeros, s.target),
        tile.units(s.pixels, s.out_channels),
        spec.Work(s.label, s.flops, s.bytes),
    )
    return spec.Candidate(f"direct_{tile.name}", (launch,))


def direct_in_groups(node: Node, context: spec.Context, shape: ConvShape) -> spec.Candidate:
    """One launch, a work-item for four outputs of a pixel."""
    s = shape
    channels, depth = round_up(s.out_channels), s.filter_h * s.filter_w * s.group_in
    vectors = channels // QUAD
    group, groups = strided(s.pixels * vectors)
    matrix = s.weights.arranged(lambda codes: filter_matrix(codes, s.group_in))
    sizes = s.image | s.taps
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/direct_groups.cl",
            spec.instance_name("groups_conv_direct", weights=s.weights.type),
            {"ALIKE": s.group_out % QUAD == 0, "WEIGHT": s.weights.type.value},
            group,
            # `divisor` passes OUT_W again below, and the kernel does not read OUT_H.
            **{name: value for name, value in sizes.items() if name not in ("OUT_H", "OUT_W")},
            TOTAL=s.pixels * vectors,
            IN_STEP=s.in_layout.channel_stride,
            CHANNELS=channels,
            OUT_CHANNELS=s.out_channels,
            GROUP_IN=s.group_in,
            **divisor("VECTORS", vectors),
            **divisor("OUT_PIXELS", s.out_h * s.out_w),
            **divisor("OUT_W", s.out_w),
            **divisor("GROUP_OUT", s.group_out),
        ),
        (s.source, matrix.rows(f"weights{s.target}", depth, s.out_channels), s.target),
        groups,
        spec.Work(s.label, s.flops, s.bytes),
    )
    return spec.Candidate("groups_direct", (launch,))
