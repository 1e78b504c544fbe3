"""Convolutions 3x3 with stride 1 by Winograd's method, in three launches.

F(2x2, 3x3) needs 2.25 times fewer multiplications than the plain product, F(4x4, 3x3) 4 times fewer; their
transformed weights take 1.8 and 4 times the memory. Narrow weights are therefore transformed in every run,
by a launch of their own, to scratch memory that all layers share.

A window with a dilation of d reads pixels that are d apart, so the map is d x d maps beside each other, each
of every d-th pixel. A tile belongs to one of them: its pixels lie d apart.

All outputs of a tile are sums of all its products. An input that is NaN or an infinity therefore makes NaN of
every output of the tiles that read it, where LiteRT's convolution changes the outputs alone whose window has
it. Telling them apart would take a second pass over all inputs in every run.
"""

from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor, reciprocal
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, rank_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import Floats, filter_matrix, panels

_SMALL_TILE = 2
"""Height and width of an output tile of F(2x2, 3x3); the other method, F(4x4, 3x3), has tiles of 4."""

_LEAST_CHANNELS = 16
"""Input and output channels from which on the products outweigh the transforms; one vector of the kernels."""

_LEAST_OF_GROUP = 32
"""Input and output channels of a group from which on a grouped convolution is transformed: of fewer, each
product is small beside the transforms. The smallest measured: 56x56 pixels with groups of 32 and 64 channels
take half of the plain product's time. Smaller could make narrow groups slower, larger forgoes that gain."""

_LEAST_PIXELS = 6
"""Height and width in pixels from which on the method can pay. Smaller maps have too few tiles to share three
launches among the workers."""

_SMALL_MAP, _LARGE_MAP = 7, 28
"""Heights or widths in pixels, of a dilated window those of every d-th pixel. Up to the first, F(4x4, 3x3) is
slower than the plain product and F(2x2, 3x3) about level with it; from the second on F(4x4, 3x3) is level or
faster with any number of channels (measured with PoCL on two AVX-512 cores, weights cold). Between them the
tuner decides."""

_MANY_CHANNELS = 128
"""Input channels above which the larger weights of F(4x4, 3x3) cost as much to read as its arithmetic saves,
on maps between small and large (measured at 14x14 with 128 and 256)."""


_FILTER_ROWS = 8
"""Input channels of a panel that a unit transforms. A layer of 64 channels then has work for eight workers;
fewer only add units."""


def winograd_fits(shape: ConvShape) -> bool:
    """Return True if the method applies, and the map is large enough for it to pay."""
    s = shape
    window = (s.filter_h, s.filter_w, s.stride_h, s.stride_w)
    if (
        window != (3, 3, 1, 1)
        or s.dilation_h != s.dilation_w
        or s.in_layout.channel_stride != 1
        or not s.in_layout.padded
    ):
        return False
    # Patches and panels consist of whole vectors of a group's channels.
    members = (s.group_in, s.group_out)
    if s.groups > 1 and (min(members) < _LEAST_OF_GROUP or any(count % LANES for count in members)):
        return False
    # Of maps of a single pixel each, a tile computes four outputs to keep one.
    has_room = min(s.out_h, s.out_w) >= _LEAST_PIXELS and _extent(s) > 1
    return min(s.in_channels, s.out_channels) >= _LEAST_CHANNELS and has_room


def is_small_map(shape: ConvShape) -> bool:
    """Return True for maps on which transforms and weights may cost more than they save."""
    return _extent(shape) <= _SMALL_MAP


def _extent(shape: ConvShape) -> int:
    """Height or width of the map, whichever is less, or of each of those that a dilation makes of it."""
    return ceil_div(min(shape.out_h, shape.out_w), shape.dilation_h)


def winograd_candidates(node: Node, context: spec.Context, shape: ConvShape) -> list[spec.Candidate]:
    """F(4x4, 3x3) for large maps, F(2x2, 3x3) for small ones, both in between."""
    if not winograd_fits(shape):
        return []
    extent, many = _extent(shape), shape.in_channels > _MANY_CHANNELS
    sizes = (4,) if extent >= _LARGE_MAP else (2,) if is_small_map(shape) else (2, 4) if many else (4, 2)
    return [winograd(node, context, shape, size) for size in sizes]


@dataclass(frozen=True, slots=True)
class _Grid:
    """The tiles of one convolution and the sizes of its three launches.

    `tiles_y` and `tiles_x` count the tiles of all maps that a `dilation` makes. Patches have `channels`, of
    which each product reads `depth`, those of one group.
    """

    size: int
    tiles_y: int
    tiles_x: int
    dilation: int
    images: int
    channels: int
    depth: int
    tile: Tile
    panels: int

    @property
    def side(self) -> int:
        return self.size + 2

    @property
    def batch(self) -> int:
        """Elements of a patch: so many independent products."""
        return self.side * self.side

    @property
    def tiles(self) -> int:
        return self.images * self.tiles_y * self.tiles_x

    @property
    def columns(self) -> int:
        return self.panels * self.tile.columns

    @property
    def shape(self) -> dict[str, int]:
        counts = {"TILES": self.tiles, "TILES_Y": self.tiles_y, "TILES_X": self.tiles_x}
        return counts | {"DILATION": self.dilation}

    @property
    def patches(self) -> spec.Scratch:
        return spec.Scratch("patches", self.batch * self.tiles * self.channels)

    @property
    def products(self) -> spec.Scratch:
        return spec.Scratch("products", self.batch * self.tiles * self.columns)


def winograd(node: Node, context: spec.Context, shape: ConvShape, size: int) -> spec.Candidate:
    """Three launches: patches, products, outputs; before them one for narrow weights.

    Each phase needs all results of the one before, and a launch is the only barrier between workers.
    """
    dilation = shape.dilation_h
    tiles_y, tiles_x = (
        dilation * ceil_div(ceil_div(pixels, dilation), size) for pixels in (shape.out_h, shape.out_w)
    )
    channels, depth = round_up(shape.in_channels), round_up(shape.group_in)
    tile = _tile(shape, shape.images * tiles_y * tiles_x, depth, context.device)
    panels_of_all = tile.panels(shape.out_channels)
    grid = _Grid(size, tiles_y, tiles_x, dilation, shape.images, channels, depth, tile, panels_of_all)
    weights, transforms = _weights(node, context, shape, grid)
    launches = (
        *transforms,
        _input(node, context, shape, grid),
        _product(node, context, shape, grid, weights),
        _output(node, context, shape, grid),
    )
    return spec.Candidate(f"winograd{size}x{size}_{tile.name}", launches)


def _tile(shape: ConvShape, tiles: int, depth: int, device: Capabilities) -> Tile:
    """Return the cheapest tile; of a grouped convolution one whose panels belong to a single group each."""
    workers, floats = device.compute_units, device.vector_floats
    ranked = rank_tiles(tiles, shape.out_channels, depth, workers, floats)
    # One always fits: `winograd_fits` has ensured whole vectors, and some tiles are a single vector wide.
    return next(tile for tile in ranked if shape.groups == 1 or shape.group_out % tile.columns == 0)


def _input(node: Node, context: spec.Context, shape: ConvShape, grid: _Grid) -> spec.Launch:
    """Return the launch that transforms the patches of all tiles: each product reads one block."""
    values = {"IN_H": shape.in_h, "IN_W": shape.in_w, "IN_STRIDE": shape.in_layout.pixel_stride}
    pixels = shape.images * shape.in_h * shape.in_w
    pads = {"PAD_TOP": shape.pad_top, "PAD_LEFT": shape.pad_left}
    return context.launch(
        node,
        spec.function(
            "matmul/conv/winograd_input.cl",
            f"f32_conv_winograd_f{grid.size}_input",
            {"TILE": grid.size},
            CHANNELS=grid.channels,
            **grid.shape,
            **values,
            **pads,
        ),
        (shape.source, grid.patches),
        grid.images * grid.tiles_y,
        spec.Work(f"{shape.label} patches", moved=4 * (pixels * grid.channels + grid.patches.elements)),
    )


def _weights(
    node: Node, context: spec.Context, shape: ConvShape, grid: _Grid
) -> tuple[spec.PackedConstant | spec.Scratch, tuple[spec.Launch, ...]]:
    """Return transformed weights [elements of a patch][panels][depth][columns], and their launch."""
    kind, width = shape.weights.type, grid.tile.columns
    elements = grid.batch * grid.depth * grid.columns
    if kind is WeightType.F32:
        return spec.PackedConstant(
            f"winograd{shape.target}",
            elements,
            # Weights that are narrow in the file get the bits of the kernel that transforms narrow ones.
            lambda: pack_filter(
                shape.weights.codes(), grid.size, grid.depth, width, is_exact=not shape.weights.is_narrow
            ),
        ), ()
    target = spec.Scratch("transformed", elements)
    rows = 9 * grid.depth
    source = shape.weights.panels(
        f"weights{shape.target}",
        grid.panels,
        rows,
        width,
        lambda codes: panels(filter_matrix(codes, grid.depth), width),
    )
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/winograd_filter.cl",
            spec.instance_name(f"conv_winograd_f{grid.size}_filter", f"n{width}", kind),
            {"TILE": grid.size, "TILE_N": width, "ROWS": _FILTER_ROWS, "WEIGHT": kind.value},
            K=grid.depth,
            PANELS=grid.panels,
        ),
        (source, target),
        grid.panels * ceil_div(grid.depth, _FILTER_ROWS),
        spec.Work(f"{shape.label} weights", moved=source.bytes + target.bytes),
    )
    return target, (launch,)


def _product(
    node: Node,
    context: spec.Context,
    shape: ConvShape,
    grid: _Grid,
    weights: spec.PackedConstant | spec.Scratch,
) -> spec.Launch:
    """One launch for all products: each has few rows, and together they keep every worker busy."""
    moved = grid.patches.elements + weights.elements + grid.products.elements
    return context.launch(
        node,
        spec.function(
            "matmul/conv/winograd_product.cl",
            spec.instance_name("conv_winograd_product", grid.tile.name),
            {"TILE_M": grid.tile.rows, "TILE_N": grid.tile.columns},
            TILES=grid.tiles,
            CHANNELS=grid.channels,
            K=grid.depth,
            **divisor("PANELS", grid.panels),
            **reciprocal("GROUP_PANELS", grid.panels // shape.groups),
            **divisor("ROW_TILES", ceil_div(grid.tiles, grid.tile.rows)),
        ),
        (grid.patches, weights, grid.products),
        grid.batch * grid.panels * ceil_div(grid.tiles, grid.tile.rows),
        spec.Work(f"{shape.label} products", 2 * grid.products.elements * grid.depth, 4 * moved),
    )


def _output(node: Node, context: spec.Context, shape: ConvShape, grid: _Grid) -> spec.Launch:
    """Return the launch of all tiles' outputs, with bias and epilogue: only here results are pixels."""
    channels = round_up(shape.out_channels)

    def pack() -> spec.Array:
        found = shape.weights.bias()
        padded = np.zeros(channels, np.float32)
        if found is not None:
            padded[: shape.out_channels] = found
        return padded

    return context.launch(
        node,
        spec.function(
            "matmul/conv/winograd_output.cl",
            f"f32_conv_winograd_f{grid.size}_output",
            {"TILE": grid.size},
            OUT_H=shape.out_h,
            OUT_W=shape.out_w,
            OUT_STRIDE=shape.out_layout.pixel_stride,
            CHANNELS=channels,
            COLUMNS=grid.columns,
            **grid.shape,
        ),
        (grid.products, spec.PackedConstant(f"bias{shape.target}", channels, pack), shape.target),
        grid.images * grid.tiles_y,
        spec.Work(f"{shape.label} outputs", moved=4 * (grid.products.elements + shape.pixels * channels)),
    )


def pack_filter(weights: Floats, size: int, depth: int, width: int, *, is_exact: bool = True) -> Floats:
    """Transform a filter w, [O, 3, 3, I], to G w G', packed as [(size + 2)^2, panels, depth, width].

    G is that of Lavin and Gray ("Fast Algorithms for Convolutional Neural Networks", 2015) for output tiles
    of `size`. Input channels behind I and outputs behind O are zeros. `is_exact`: in float64, rounded once;
    else with the bits of the kernel that transforms narrow weights.
    """
    outputs, _, _, inputs = weights.shape
    side, count = size + 2, ceil_div(outputs, width)
    found = np.empty((side * side, count, depth, width), np.float32)
    # Panel by panel: in float64, the intermediate sums of a whole filter take several times its memory.
    for panel in range(count):
        columns = weights[panel * width : (panel + 1) * width].transpose(1, 2, 3, 0)
        # Single precision would double the error of the whole convolution.
        taps = np.zeros((3, 3, depth, width), np.float64 if is_exact else np.float32)
        taps[:, :, :inputs, : columns.shape[-1]] = columns
        for line, row in enumerate(transformed(taps, size)):
            found[line * side : (line + 1) * side, panel] = transformed(row, size)
    return found


def transformed(taps: spec.Array, size: int) -> spec.Array:
    """G times the first axis of `taps`, 3 long, in their precision.

    In float32 it has the bits of TRANSFORM of `conv/winograd_filter.cl`.
    """
    first, middle, last = taps
    outer, number = first + last, taps.dtype.type
    if size == _SMALL_TILE:
        half = number(0.5)
        return np.stack([first, (outer + middle) * half, (outer - middle) * half, last])
    # The rows of G: (1/4, 0, 0), (-1/6, -+1/6, -1/6), (1/24, +-1/12, 1/6), (0, 0, 1). Factors
    # that are not powers of two are rounded to the taps' type and applied last, as in the kernel.
    far, twice = first + last * number(4), middle * number(2)
    near, distant = number(-1) / number(6), number(1) / number(24)
    rows = (outer + middle) * near, (outer - middle) * near, (far + twice) * distant, (far - twice) * distant
    return np.stack([first * number(0.25), *rows, last])
