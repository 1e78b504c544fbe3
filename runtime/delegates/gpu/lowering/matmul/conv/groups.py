"""Products and convolutions by kernels of work-groups: the left side's pixels by constant weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import FEWEST_ITEMS, GROUP_ITEMS, QUAD, LocalArray, WorkGroup
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.gemm import Product
from runtime.delegates.gpu.lowering.matmul.conv.lanes import in_lanes, suits_lanes
from runtime.delegates.gpu.lowering.matmul.conv.left_side import GroupProduct, LeftSide
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape
from runtime.delegates.gpu.lowering.matmul.conv.weights import filter_matrix

SIDE = 16
"""Work-items along each side of a group of a product, which the kernel holds as well: 256 in all."""

ENOUGH_ITEMS = 1 << 16
"""Work-items for which a smaller tile is chosen. Chosen: a quarter of what the largest GPUs hold; with more,
small tiles load every number more often, with fewer, processors idle."""

SPLIT_DEPTH = 32
"""Fewest k of a part of a split product. With fewer, joining the parts costs as much as they save."""

_SPLIT_ROWS = 4
"""Most rows of a work-item of a product that is split, those of the tile of 64 x 64. Larger tiles would need
more parts for as many work-items; smaller ones load each number more often."""

FEW_ROWS = 4
"""Most rows of a product that is computed without tiles: a tile of 16 rows would mostly multiply zeros, and
each further row reads all weights again."""

ROW_RANGE = 128
"""Fewest k of a part of a split product of few rows: eight for each of the 16 work-items of a column."""

WIDE_MEMBER = 32
"""Fewest outputs of a group of channels that is computed in tiles of 64 columns. With fewer, more than half
of each tile would multiply zeros."""


_FRAGMENT = 6
"""Words of both factors of a matrix unit that a work-item holds: m16n8k16 of 16 bits, or m16n8k8 of TF32."""

_WIDE_UNITS = {"TF32": "F32"}
"""Types of matrix units that take a word for each number → the type of the weights that are rounded to it."""

_MANY, _MANY_OF_MATRICES = 16, 8
"""Vectors of sums of a work-item for which an assembler takes over 128 registers unless it is told that two
groups shall fit into a multiprocessor. Of matrix units' 16, with what is on its way, only one does."""

_FEWEST_MATRIX_ROWS = 2
"""Rows of a work-item from which on the eight warps of a group have a tile of a matrix unit each."""


@dataclass(frozen=True, slots=True)
class GroupTile:
    """The work of a group of 16 x 16 work-items: each has `rows` rows of `vectors` vectors of columns.

    `in_matrices`: matrix units multiply; how many pairs of words hold four numbers then, else 0.
    """

    rows: int
    vectors: int
    depth: int
    in_matrices: int = 0

    @property
    def height(self) -> int:
        """Rows of the tile."""
        return SIDE * self.rows

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return SIDE * QUAD * self.vectors

    @property
    def name(self) -> str:
        """The tile's part of kernel names: m64n64."""
        return f"m{self.height}n{self.width}"

    def groups(self, rows: int, columns: int) -> tuple[int, int]:
        """Tiles along columns and rows."""
        return ceil_div(columns, self.width), ceil_div(rows, self.height)

    def and_smaller(self) -> Iterator["GroupTile"]:
        """Yield the tile, then smaller ones: their groups are as large, and need fewer registers."""
        yield self
        for tile in TILES:
            fits = tile.rows >= _FEWEST_MATRIX_ROWS or self.in_matrices == 0
            if fits and tile.rows * tile.vectors < self.rows * self.vectors:
                yield replace(tile, in_matrices=self.in_matrices)

    @property
    def work_group(self) -> WorkGroup:
        """The group with a tile of each side, `depth` k at a time."""
        quads = max(self.in_matrices, 1) * self.depth // QUAD
        kind = "uint2" if self.in_matrices else "float4"
        exchange = (LocalArray("exchange", "uint", _FRAGMENT * GROUP_ITEMS),) if self.in_matrices else ()
        arrays = (
            LocalArray("tile_left", kind, self.height * quads),
            LocalArray("tile_right", kind, self.width * quads),
        )
        has_many = self.rows * self.vectors == (_MANY_OF_MATRICES if self.in_matrices else _MANY)
        return WorkGroup((SIDE, SIDE, 1), (*arrays, *exchange), together=2 if has_many else 0)


TILES = (
    GroupTile(8, 2, 16),
    GroupTile(8, 1, 16),
    GroupTile(4, 1, 16),
    GroupTile(2, 1, 16),
    GroupTile(1, 1, 16),
)
"""Tiles from the one that loads each number the fewest times to the one with the most work-items for a
result. The first fills 16 KiB of local memory."""


_FEW_SUMS = 32
"""Most sums of a work-item with few registers: beside 64 and their operands, Intel's compiler for dg2 puts
272 to 416 bytes of each thread into memory, beside 32 none."""

_SUMS_BESIDE_FUNCTIONS = 16
"""The same where the epilogue has one of `_FUNCTIONS`: beside 32 sums GELU's takes 128 bytes of memory."""

_FUNCTIONS = frozenset({"GELU"})
"""Steps whose polynomials hold more numbers at a time than others: erf."""


def tiles_for(node: Node, device: Capabilities) -> tuple[GroupTile, ...]:
    """Return the tiles for whose sums a work-item of the device has registers."""
    if not device.has_few_registers:
        return TILES
    has_functions = not _FUNCTIONS.isdisjoint(step.op for step in node.epilogue)
    most = _SUMS_BESIDE_FUNCTIONS if has_functions else _FEW_SUMS
    return tuple(tile for tile in TILES if QUAD * tile.rows * tile.vectors <= most)


def choose_tile(
    rows: int, columns: int, batch: int = 1, parts: int = 1, tiles: Sequence[GroupTile] = TILES
) -> GroupTile:
    """Return the largest of the tiles that gives enough work-items and is not half empty.

    Where none does, the product may be split into so many `parts`: then the largest tile of those of which
    that makes enough, and are no larger than 64 x 64.
    """
    fitting = [tile for tile in tiles if tile.height < 2 * rows or tile.rows == 1]
    fitting = [tile for tile in fitting if tile.width < 2 * columns or tile.vectors == 1]
    for tile in fitting:
        if prod(tile.groups(rows, columns)) * batch * GROUP_ITEMS >= ENOUGH_ITEMS:
            return tile
    small = [tile for tile in fitting if tile.rows <= _SPLIT_ROWS]
    items = {tile: prod(tile.groups(rows, columns)) * batch * parts * GROUP_ITEMS for tile in small}
    # `small` is never empty, since the smallest tile meets all of these conditions.
    return next((tile for tile in small if items[tile] >= FEWEST_ITEMS), small[-1])


def parts_of(depth: int, items: int, least: int, step: int) -> tuple[int, int]:
    """Return the number of parts of a product of so many work-items, and k of each, a multiple of `step`."""
    wanted = min(ceil_div(FEWEST_ITEMS, items), max(1, depth // least))
    size = round_up(ceil_div(depth, wanted), step)
    return ceil_div(depth, size), size


def joining_items(parts: int, vectors: int) -> int:
    """Work-items that share a vector when so many parts of it are added up, a power of two: with one each for
    few vectors, a large GPU idles.
    """
    items = 1
    while 2 * items <= min(parts, GROUP_ITEMS) and items * vectors < FEWEST_ITEMS:
        items *= 2
    return items


def product_in_groups(
    node: Node, context: spec.Context, product: Product, scale: int | None = None
) -> list[spec.Candidate]:
    """Return a product that is the whole of `node`; `scale` is a value with a factor for each k."""
    # So that a load of four adjacent k never leaves its row.
    aligned = product.step == 1 and product.row_stride % QUAD == 0 and product.depth <= product.row_stride
    # The kernel without tiles knows no scales.
    if product.rows <= FEW_ROWS and scale is None:
        return [_few_rows(node, context, product)]
    left = LeftSide("rows", product.row_stride, product.step, product.depth, aligned, scale)
    whole = GroupProduct(left, product.weights, product.rows, product.depth, product.columns, product.work)
    return tiled_product(node, context, whole)


def window_in_groups(node: Node, context: spec.Context, shape: ConvShape) -> list[spec.Candidate]:
    """Return a convolution as a product whose left side are windows, for each of its groups of channels.

    The outputs of a group are a multiple of `QUAD` where there are several.
    """
    s = shape
    channels = round_up(s.group_in, QUAD)
    depth = s.filter_h * s.filter_w * channels
    matrix = s.weights.arranged(lambda codes: filter_matrix(codes, channels))
    step, stride = s.in_layout.channel_stride, s.in_layout.pixel_stride
    # The last group's channels, padded to whole vectors, must still end within the pixel.
    aligned = step == 1 and stride % QUAD == 0 and s.in_channels - s.group_in + channels <= stride
    # Later groups begin on a vector boundary only if every group fills whole vectors.
    aligned = aligned and (s.groups == 1 or s.group_in % QUAD == 0)
    sizes = {name: value for name, value in (s.image | s.taps).items() if name not in _UNUSED}
    values = sizes | {
        **divisor("OUT_PIXELS", s.out_h * s.out_w),
        **divisor("OUT_W", s.out_w),
        **divisor("FILTER_W", s.filter_w),
        **divisor("DEPTH", channels),
    }
    left = LeftSide("window", stride, step, s.group_in, aligned, members=s.groups, values=values)
    work = spec.Work(s.label, s.flops, s.bytes)
    product = GroupProduct(left, matrix, s.pixels, depth, s.out_channels, work)
    return tiled_product(node, context, product)


def has_wide_members(shape: ConvShape) -> bool:
    """Return True if each group of a convolution's channels has outputs for most of a tile's columns."""
    return shape.group_out % QUAD == 0 and shape.group_out >= WIDE_MEMBER


_UNUSED = frozenset({"OUT_H", "OUT_W", "OUT_STRIDE", "IN_STRIDE", "FILTER_H", "FILTER_W"})
"""Sizes that the kernel does not read, or reads as divisors or under another name."""


def tiled_product(node: Node, context: spec.Context, product: GroupProduct) -> list[spec.Candidate]:
    """Return the product in tiles, first by matrix units where the device has them for these weights."""
    left = product.left
    if context.device.works_in_lanes and suits_lanes(left):
        return [in_lanes(node, context, product)]
    width, count = product.columns // left.members, left.members * left.phases
    parts, tiles = max(1, product.depth // SPLIT_DEPTH), tiles_for(node, context.device)
    tile = choose_tile(product.rows, width, count, parts, tiles)
    # Phases of transposed convolutions differ from LiteRT by matrix units; why is not known yet.
    unit = context.device.matrix_type
    has_units = product.weights.type.value == _WIDE_UNITS.get(unit, unit) and left.kind != "phases"
    has_units = has_units and tile.rows >= _FEWEST_MATRIX_ROWS
    kinds = (replace(tile, in_matrices=2 if unit in _WIDE_UNITS else 1), tile) if has_units else (tile,)
    return [
        context.first_accepted(_tiled(node, context, product, smaller) for smaller in one.and_smaller())
        for one in kinds
    ]


def _tiled(node: Node, context: spec.Context, product: GroupProduct, tile: GroupTile) -> spec.Candidate:
    """One launch in tiles, or, where there are too few, one of parts of the sums and one that joins them."""
    left, weights = product.left, product.weights
    rows, depth, columns = product.rows, product.depth, product.columns
    source, target = node.first, node.outputs[0]
    right = weights.rows(f"weights{target}", left.phases * depth, columns)
    count, width, pixels = left.members * left.phases, columns // left.members, left.pixels or rows
    across, down = tile.groups(rows, width)
    parts, size = parts_of(depth, across * down * count * GROUP_ITEMS, SPLIT_DEPTH, tile.depth)
    is_split = parts > 1
    stride = context.layout(target).pixel_stride
    values = {"K": depth, "M": rows, "CHANNELS": round_up(columns), "IN_CHANNELS": left.channels}
    values |= {"LEFT_ROW": left.row, "LEFT_STEP": left.step, **left.values}
    # Parts are stored as rows of CHANNELS, without an epilogue; only the joining launch knows the output.
    values |= {"SPLIT_K": size} if is_split else {"N": columns, "OUT_STRIDE": stride}
    if left.members > 1:
        values |= {"N": columns, "GROUP_OUT": width, **divisor("PARTS", parts)}
    if left.kind == "phases":
        values |= {"OUT_M": pixels, **divisor("PARTS", parts)}
    scratch = spec.Scratch("parts", parts * pixels * round_up(columns))
    scales: tuple[spec.Argument, ...] = () if left.scale is None else (left.scale,)
    moved = (product.work.moved or 0) + (scratch.bytes if is_split else 0)
    unit = {"UNIT": context.device.matrix_type} if tile.in_matrices else {}
    wide = "tf32_" if context.device.matrix_type in _WIDE_UNITS else ""
    kind = f"{wide}matrix_{left.kind}" if tile.in_matrices else left.kind
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/gemm_groups.cl",
            spec.instance_name(f"groups_gemm_{kind}", tile.name, weights.type),
            spec.joined(
                left.defines,
                {
                    "RIGHT_PACKED": 1,
                    "RIGHT_COLUMNS": 0,
                    "WEIGHT": weights.type.value,
                    "ROWS": tile.rows,
                    "VECTORS": tile.vectors,
                    "TILE_K": tile.depth,
                    "SPLIT": is_split,
                    "MATRIX": tile.in_matrices,
                    **unit,
                },
            ),
            tile.work_group,
            **values,
        ),
        (source, right, scratch if is_split else target, *scales),
        # The third dimension counts members or phases, each with all of its parts.
        (across, down, count * parts),
        replace(product.work, moved=moved),
    )
    name = f"{'matrices' if tile.in_matrices else 'groups'}_{tile.name}"
    if not is_split:
        return spec.Candidate(name, (launch,))
    join = _joined(node, context, scratch, right, (parts, pixels, columns))
    return spec.Candidate(f"{name}_split{parts}", (launch, join))


def _few_rows(node: Node, context: spec.Context, product: Product) -> spec.Candidate:
    """Return a launch without tiles, split like a tiled one."""
    source, target = node.first, node.outputs[0]
    weights = product.weights.rows(f"weights{target}", product.depth, product.columns)
    across = ceil_div(round_up(product.columns), SIDE * QUAD)
    items = across * product.rows * GROUP_ITEMS
    parts, size = parts_of(product.depth, items, ROW_RANGE, SIDE)
    is_split = parts > 1
    scratch = spec.Scratch("parts", parts * product.rows * round_up(product.columns))
    values = {"K": product.depth, "CHANNELS": round_up(product.columns), "SPLIT_K": size}
    values |= {"LEFT_ROW": product.row_stride, "LEFT_STEP": product.step}
    stored = {"N": product.columns, "OUT_STRIDE": context.layout(target).pixel_stride}
    values |= {"M": product.rows} if is_split else stored
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/gemm_row_groups.cl",
            spec.instance_name("groups_gemm_row", weights=product.weights.type),
            {"SPLIT": is_split, "WEIGHT": product.weights.type.value},
            WorkGroup((SIDE, SIDE, 1), (LocalArray("partial", "float4", GROUP_ITEMS),)),
            **values,
        ),
        (source, weights, scratch if is_split else target),
        (across, product.rows, parts),
        product.work,
    )
    if not is_split:
        return spec.Candidate("groups_row", (launch,))
    join = _joined(node, context, scratch, weights, (parts, product.rows, product.columns))
    return spec.Candidate(f"groups_row_split{parts}", (launch, join))


def _joined(
    node: Node,
    context: spec.Context,
    parts: spec.Scratch,
    weights: spec.PackedConstant,
    shape: tuple[int, int, int],
) -> spec.Launch:
    """Return the launch that adds up the parts of a split product, and applies the epilogue."""
    count, rows, columns = shape
    target, vectors = node.outputs[0], round_up(columns) // QUAD
    lanes = joining_items(count, rows * vectors)
    width = GROUP_ITEMS // lanes
    groups = ceil_div(rows * vectors, width)
    return context.launch(
        node,
        spec.function(
            "matmul/conv/gemm_join_groups.cl",
            spec.instance_name("groups_gemm_join", f"l{lanes}"),
            {"LANES": lanes},
            WorkGroup((width, lanes), (LocalArray("partial", "float4", GROUP_ITEMS),)),
            M=rows,
            N=columns,
            CHANNELS=round_up(columns),
            SPLITS=count,
            TOTAL=rows * vectors,
            **context.strides(OUT=target),
            **divisor("VECTORS", vectors),
        ),
        # The weights are passed for the bias in front of them.
        (parts, weights, target),
        (groups, 1),
        spec.Work(f"join {count}x{rows}x{columns}", count * rows * columns, parts.bytes + 4 * rows * columns),
    )
