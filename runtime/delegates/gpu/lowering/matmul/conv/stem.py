"""The first convolution of a network: images of few channels, interleaved or planar as the host gives it."""

from runtime.delegates.gpu.graph.graph import LANES, Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, rank_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import panels

_MOST_CHANNELS = 4
"""Input channels up to which a pixel counts as an image's (grey, RGB, RGBA). With more, padding to 16 lanes
wastes less, and the other kernels need no copy of the rows."""

_MOST_STEPS = 32
"""Taps of one line whose code is unrolled: 7 x 4 channels and 9 x 3 fit. More make the code of a unit larger
than it saves."""

_CONSTANT = ("IN_STRIDE", "FILTER_W", "STRIDE_W", "DILATION_W")
"""Numbers that make the offset of each tap in a line, which the unrolled code has as constants."""

_MOST_ROWS, _MOST_SUMS = 8, 16 * LANES
"""Pixels, and sums in floats, of a tile. Larger tiles run slower here: each sum is in use too briefly."""

_MOST_LINE_BYTES = 64 << 10
"""Bytes of the input rows under one output row, which every worker copies to private memory. Chosen so that
the copy stays in a core's second-level cache; larger images use another kernel."""


def is_planar(shape: ConvShape) -> bool:
    """Return True if the channels of the input lie in planes."""
    return shape.in_layout.pixel_stride == 1 and shape.in_channels > 1


def _line_floats(shape: ConvShape) -> int:
    """Elements of the input rows under one output row, with the zeros around them."""
    s = shape
    reach = (s.out_w - 1) * s.stride_w + (s.filter_w - 1) * s.dilation_w + 1
    return s.filter_h * reach * (s.in_channels if is_planar(s) else s.in_layout.pixel_stride)


def stem_fits(shape: ConvShape) -> bool:
    """Return True if the kernel can read this input, and its code and private memory stay small."""
    s, layout = shape, shape.in_layout
    if s.groups > 1 or s.in_channels > _MOST_CHANNELS or s.filter_h * s.filter_w == 1:
        return False
    if layout.channel_stride != 1 and not (is_planar(s) and s.images == 1):
        return False
    steps = s.filter_w * (1 if is_planar(s) else s.in_channels)
    return 4 * _line_floats(s) <= _MOST_LINE_BYTES and steps <= _MOST_STEPS


def stem_candidates(node: Node, context: spec.Context, shape: ConvShape) -> list[spec.Candidate]:
    """Return the cheapest tile along a row, if the kernel fits."""
    if not stem_fits(shape):
        return []
    depth = shape.filter_h * shape.filter_w * shape.in_channels
    # Ranked for a single worker, because a unit is a whole row and computes all of its tiles.
    tiles = rank_tiles(shape.out_w, shape.out_channels, depth, 1, context.device.vector_floats)
    small = (tile for tile in tiles if tile.rows <= _MOST_ROWS and tile.rows * tile.columns <= _MOST_SUMS)
    # There always is one, since a tile of one pixel by 16 channels is within both bounds.
    return [stem(node, context, shape, next(small))]


def stem(node: Node, context: spec.Context, shape: ConvShape, tile: Tile) -> spec.Candidate:
    """One launch; a unit is an output row.

    The rows under its window are copied once, with their padding, so that every tap has a constant offset.
    """
    s, count = shape, tile.panels(shape.out_channels)
    depth = s.filter_h * s.filter_w * s.in_channels

    def pack(codes: spec.Array) -> spec.Array:
        return panels(stem_matrix(codes, planar=is_planar(s)), tile.columns)

    weights = s.weights.panels(f"weights{s.target}", count, depth, tile.columns, pack)
    given = s.image | s.taps
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/stem.cl",
            spec.instance_name(f"conv_stem_w{s.filter_w}s{s.stride_w}", tile.name, s.weights.type),
            spec.joined(
                # Popped, because the rest of `given` become parameters.
                {name: given.pop(name) for name in _CONSTANT},
                {
                    "PLANAR": is_planar(s),
                    "IN_CHANNELS": s.in_channels,
                    "TILE_M": tile.rows,
                    "TILE_N": tile.columns,
                    "WEIGHT": s.weights.type.value,
                    # One size for all images, of which only what is used is touched: every size were one more
                    # function.
                    "CAPACITY": _MOST_LINE_BYTES // 4,
                },
            ),
            **given,
            IN_STEP=s.in_layout.channel_stride,
            CHANNELS=round_up(s.out_channels),
            **divisor("PANELS", count),
        ),
        (s.source, weights, s.target),
        s.images * s.out_h,
        spec.Work(s.label, s.flops, s.bytes),
    )
    return spec.Candidate(f"stem_{tile.name}", (launch,))


def stem_matrix(weights: spec.Array, *, planar: bool) -> spec.Array:
    """Turn a filter [O, h, w, I] into a matrix [h * w * I, O] with rows in the order of the copied lines.

    That order is y, x, channel for interleaved images and y, channel, x for planar ones.
    """
    order = (1, 3, 2, 0) if planar else (1, 2, 3, 0)
    return weights.transpose(order).reshape(-1, weights.shape[0])
