"""DEPTHWISE_CONV_2D by a kernel of its own; several outputs per channel as a convolution with groups."""

from math import prod

from runtime.delegates.gpu.graph import work_groups
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.direct import direct_candidates, direct_in_groups
from runtime.delegates.gpu.lowering.matmul.conv.family import constants_refusal, read
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape, conv_shape
from runtime.delegates.gpu.lowering.matmul.conv.weights import depthwise_panels
from runtime.model.schema import BuiltinOperator as Op

_UNITS_PER_WORKER = 4
"""Units that every worker should get, at least: the channels of a tile are cut where there are fewer tiles.
More even out workers of unlike speed; each part computes the positions of its tile again."""

_MOST_ROWS, _MOST_COLUMNS = 4, 8
"""Height and width of a tile in output pixels. Chosen around the tiles that were fastest, 2x7 and 2x4; larger
ones make unrolled code that is compiled for longer, and only `_MOST_SUMS` of their pixels fit."""

_CLOSE_RATIO = 1.05
"""Costs within this ratio are left to measurement. Wider than for products (`conv/tiles.py`): the model
counts arithmetic and loads, but large maps are bound by memory, which it does not see."""

_MOST_SUMS, _MOST_SUMS_NARROW = 16, 4
"""Output pixels of a tile where a register holds 16 floats, or fewer: the sums stay in registers, the code
stays small."""

_GROUP_SIDE = 8
"""Most rows and columns of a work-group's tile: 64 pixels by four vectors of channels are its 256 items."""

_FEWEST_CHAINS = 8
"""Sums that must be in flight to hide the latency of a multiply-add, as in `conv/tiles.py`."""


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the cheapest tile, and the next if the model sees little difference."""
    shape = conv_shape(node, context, depthwise=True)
    if work_groups.suits_groups(context.device):
        is_plain = shape.in_channels == shape.out_channels
        if is_plain and context.device.works_in_lanes:
            return [_in_lanes(node, context, shape)]
        tile = patch_tile(shape) if is_plain else None
        grouped = _in_groups(node, context, shape, tile) if tile else direct_in_groups(node, context, shape)
        return [grouped]
    if shape.in_channels != shape.out_channels:
        return direct_candidates(node, context, shape)
    tiles = rank_tiles(shape, context.device.vector_floats)
    close = [tile for tile in tiles[:2] if _cost(tile, shape) <= _CLOSE_RATIO * _cost(tiles[0], shape)]
    return [depthwise(node, context, shape, tile) for tile in close]


def rank_tiles(shape: ConvShape, vector_floats: int) -> list[tuple[int, int]]:
    """(rows, columns) of output pixels, the cheapest by arithmetic, loads and stores first."""
    most_sums = _MOST_SUMS if vector_floats >= LANES else _MOST_SUMS_NARROW
    tiles = [
        (rows, columns)
        for rows in range(1, min(_MOST_ROWS, shape.out_h) + 1)
        for columns in range(1, min(_MOST_COLUMNS, shape.out_w) + 1)
        if rows * columns <= most_sums
    ]
    return sorted(tiles, key=lambda tile: _cost(tile, shape))


def _cost(tile: tuple[int, int], shape: ConvShape) -> int:
    """Half cycles for 16 channels of one image: multiply-adds, loads of the patch and the taps, stores."""
    taps, sums = shape.filter_h * shape.filter_w, prod(tile)
    loads = 2 * prod(patch_of(shape, tile)) + taps + 2 * sums
    return _tiles(shape, tile) * (taps * max(sums, _FEWEST_CHAINS) + loads)


def _parts(shape: ConvShape, tiles: int, blocks: int, workers: int) -> int:
    """Return the number of parts into which a tile's channels are cut, so that every worker has work."""
    wanted = ceil_div(_UNITS_PER_WORKER * workers, tiles * shape.images)
    # Only equal parts, because the kernel takes a single size for all of them.
    return next(count for count in range(min(wanted, blocks), 0, -1) if blocks % count == 0)


def depthwise(node: Node, context: spec.Context, shape: ConvShape, tile: tuple[int, int]) -> spec.Candidate:
    """Tiles of (rows, columns) output pixels; the channels are cut where there are few tiles."""
    s, (rows, columns) = shape, tile
    channels, taps = round_up(s.out_channels), s.filter_h * s.filter_w
    tiles = _tiles(s, tile)
    parts = _parts(s, tiles, channels // LANES, context.device.compute_units)

    weights = s.weights.panels(f"weights{s.target}", channels // LANES, taps, LANES, depthwise_panels)
    launch = _launch(
        node,
        context,
        s,
        spec.function(
            "matmul/depthwise_conv.cl",
            spec.instance_name(f"depthwise_conv_{s.window}", f"r{rows}c{columns}", s.weights.type),
            spec.joined(s.taps, {"TILE_H": rows, "TILE_W": columns, "WEIGHT": s.weights.type.value}),
            **s.image,
            BLOCK=channels // parts,
            **divisor("PARTS", parts),
            **divisor("TILES_X", ceil_div(s.out_w, columns)),
            **divisor("TILES_Y", ceil_div(s.out_h, rows)),
        ),
        weights,
        s.images * tiles * parts,
    )
    return spec.Candidate(f"tile_r{rows}c{columns}p{parts}", (launch,))


PATCH = work_groups.LOCAL_BYTES // 16
"""Vectors of four floats of the largest patch."""


def patch_of(shape: ConvShape, tile: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the input that the windows of a tile cover."""
    s, (rows, columns) = shape, tile
    height = (rows - 1) * s.stride_h + (s.filter_h - 1) * s.dilation_h + 1
    return height, (columns - 1) * s.stride_w + (s.filter_w - 1) * s.dilation_w + 1


def patch_tile(shape: ConvShape) -> tuple[int, int] | None:
    """Return a work-group's tile: fewest groups, then the smallest patch; None if none fits."""
    blocks = LANES // work_groups.QUAD
    side = range(1, _GROUP_SIDE + 1)
    tiles = [(rows, columns) for rows in side for columns in side]
    fitting = [tile for tile in tiles if prod(patch_of(shape, tile)) * blocks <= PATCH]
    return min(fitting, key=lambda tile: (_tiles(shape, tile), prod(patch_of(shape, tile))), default=None)


def _tiles(shape: ConvShape, tile: tuple[int, int]) -> int:
    return ceil_div(shape.out_h, tile[0]) * ceil_div(shape.out_w, tile[1])


def _in_groups(node: Node, context: spec.Context, shape: ConvShape, tile: tuple[int, int]) -> spec.Candidate:
    """Tiles of output pixels by 16 channels, whose patches lie in local memory."""
    s, (rows, columns) = shape, tile
    channels = round_up(s.out_channels)
    height, width = patch_of(s, tile)
    # Powers of two, so that few functions differ by it.
    patch = 1 << (height * width * LANES // work_groups.QUAD - 1).bit_length()
    down, across = ceil_div(s.out_h, rows), ceil_div(s.out_w, columns)
    launch = _launch(
        node,
        context,
        s,
        spec.function(
            "matmul/depthwise_conv_groups.cl",
            spec.instance_name("groups_depthwise_conv", weights=s.weights.type),
            {"WEIGHT": s.weights.type.value},
            work_groups.WorkGroup(
                (work_groups.GROUP_ITEMS, 1, 1), (work_groups.LocalArray("patch", "float4", patch),)
            ),
            **s.image,
            **s.taps,
            CHANNELS=channels,
            TILE_H=rows,
            PATCH_H=height,
            **divisor("TILE_W", columns),
            **divisor("PATCH_W", width),
            **divisor("TILES_DOWN", down),
        ),
        _rows(s),
        (across, down * s.images, channels // LANES),
    )
    return spec.Candidate(f"groups_r{rows}c{columns}", (launch,))


def _in_lanes(node: Node, context: spec.Context, shape: ConvShape) -> spec.Candidate:
    """Return a launch with a work-item for each output pixel by 16 channels."""
    s = shape
    channels = round_up(s.out_channels)
    # OUT_W follows as a divisor, with the numbers to divide by it; OUT_H this kernel does not read.
    image = {name: value for name, value in s.image.items() if name not in ("OUT_H", "OUT_W")}
    launch = _launch(
        node,
        context,
        s,
        spec.function(
            "matmul/depthwise_conv_lanes.cl",
            spec.instance_name("lanes_depthwise_conv", weights=s.weights.type),
            {"WEIGHT": s.weights.type.value, "ITEMS": work_groups.LANE_ITEMS},
            work_groups.WorkGroup((work_groups.LANE_ITEMS, 1)),
            **image,
            **s.taps,
            M=s.pixels,
            CHANNELS=channels,
            **divisor("OUT_PIXELS", s.out_h * s.out_w),
            **divisor("OUT_W", s.out_w),
        ),
        _rows(s),
        (channels // LANES, ceil_div(s.pixels, work_groups.LANE_ITEMS)),
    )
    return spec.Candidate("lanes", (launch,))


def _rows(shape: ConvShape) -> spec.PackedConstant:
    """Pack the weights with a row of channels for each tap."""
    matrix = shape.weights.arranged(lambda codes: codes.reshape(len(codes), -1).T)
    return matrix.rows(f"weights{shape.target}", shape.filter_h * shape.filter_w, shape.out_channels)


def _launch(
    node: Node,
    context: spec.Context,
    shape: ConvShape,
    instance: spec.Instance,
    weights: spec.PackedConstant,
    units: int | tuple[int, ...],
) -> spec.Launch:
    s = shape
    note = f"{s.window} {s.out_h}x{s.out_w}x{s.out_channels}"
    moved = s.images * (s.in_h * s.in_w + s.out_h * s.out_w) * s.out_channels
    return context.launch(
        node,
        instance,
        (s.source, weights, s.target),
        units,
        spec.Work(note, 2 * s.pixels * s.out_channels * s.filter_h * s.filter_w, 4 * moved),
    )


FAMILY = spec.Family(
    operators=(Op.DEPTHWISE_CONV_2D,),
    read=read,
    lower=lower,
    supports=constants_refusal,
    epilogue=True,
    weights=(1,),
)
