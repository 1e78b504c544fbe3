"""Batches of matrix products, and the kernels that compute them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from runtime.delegates.gpu.graph.graph import LANES, Layout, Node, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import Digit, Offset, divisor, offset
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, best_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import Floats

_FEW_ROWS = 4
"""Most rows of a product that may be computed as dot products where the right side is adjoint. Packing reads
and writes the right side once more than they do; they load all of it again for each row."""


@dataclass(frozen=True, slots=True)
class LeftSide:
    """The left side: element (b, i, k) lies at `start` + b * `batches` + i * `row` + k * `step`, in elements.

    b has three digits, one for each batch dimension, and 0 stands for a broadcast. Behind `inner` neighbours
    along k the next group begins, `outer` elements behind the start of one.
    """

    source: spec.Argument
    batches: tuple[int, ...]
    row: int
    step: int
    inner: int
    outer: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class RightSide:
    """The right side: matrices of lines that lie `stride` elements apart, channels padded to 16.

    A line is a row of the matrix, or a column of it where `adjoint` is true. `extents` are the three batch
    dimensions, 1 where the matrices are broadcast; `batches` are the elements from one matrix to the next in
    each, 0 for a broadcast; the first begins at element `start`. `data` is the content of a constant, float32
    [matrices, lines, channels].
    """

    source: int
    extents: tuple[int, ...]
    batches: tuple[int, ...]
    stride: int
    adjoint: bool
    data: Floats | None = None
    start: int = 0

    @property
    def matrices(self) -> int:
        """The number of different matrices."""
        return prod(self.extents)

    def packed_batches(self, matrix: int) -> tuple[int, ...]:
        """`batches` where the matrices lie behind each other, `matrix` elements each."""
        return row_major(self.extents, matrix)


def row_major(extents: Sequence[int], size: int) -> tuple[int, ...]:
    """Elements from one item of `size` elements to the next along each dimension; 0 along one of extent 1."""
    return tuple(size * prod(extents[i + 1 :]) if extent > 1 else 0 for i, extent in enumerate(extents))


@dataclass(frozen=True, slots=True)
class Product:
    """out[b, i, n] = sum over k of left[b, i, k] * right[b, k, n]; `batches` are the three extents of b."""

    left: LeftSide
    right: RightSide
    batches: tuple[int, ...]
    rows: int
    depth: int
    columns: int

    @property
    def batch(self) -> int:
        """The number of products."""
        return prod(self.batches)

    @property
    def sizes(self) -> str:
        """Batch, rows, depth and columns, for profiles."""
        return f"{self.batch}x{self.rows}x{self.depth}x{self.columns}"

    @property
    def channels(self) -> int:
        """Columns, padded."""
        return round_up(self.columns)

    @property
    def right_elements(self) -> int:
        """Elements of all different matrices of the right side."""
        return self.right.matrices * self.depth * self.columns

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.rows * self.depth * self.columns

    @property
    def bytes(self) -> int:
        """Bytes that must be read and written at least once."""
        return 4 * (self.batch * self.rows * (self.depth + self.columns) + self.right_elements)

    def starts(self, right: Sequence[int], start: int = 0) -> tuple[dict[str, str], dict[str, int]]:
        """Return the starts of both sides' matrices of a batch, as defines and their parameters.

        `right`: elements from one matrix of the right side to the next along each batch dimension, the first
        of which begins at `start`.
        """
        left = start_of("LEFT", self.batches, self.left.batches, "(b)", self.left.start)
        other = start_of("RIGHT", self.batches, right, "(b)", start)
        return {"LEFT(b)": left.expression, "RIGHT(b)": other.expression}, left.parameters | other.parameters


def start_of(name: str, extents: Sequence[int], steps: Sequence[int], index: str, start: int = 0) -> Offset:
    """Return where the matrix of a batch begins, `start` for the first, as an expression of `index`."""
    digits = [Digit(extent, step) for extent, step in zip(extents, steps, strict=True)]
    found = offset(f"{name}_BATCH", digits, index)
    return Offset(f"{name}_FIRST + {found.expression}", {**found.parameters, f"{name}_FIRST": start})


def placed(value: Value, context: spec.Context) -> tuple[spec.Argument, Layout]:
    """Return the argument by which a kernel reads a value, and its layout; a constant is packed as pixels."""
    if value.is_constant:
        return spec.pixels_packed(value), Layout(value.id, 0, round_up(value.channels))
    return value.id, context.layout(value.id)


def candidates(node: Node, context: spec.Context, product: Product) -> list[spec.Candidate]:
    """Return the candidates for a product that is the whole of `node`, the default first.

    Where one tile has all rows, each number of the right side is used once: packing it cannot pay.
    """
    tiles = best_tiles(product.rows, product.columns, product.depth, context.device, product.batch)
    if product.right.data is not None:
        return [_with_constant(node, context, product, tile) for tile in tiles]
    panels = [_with_panels(node, context, product, tile) for tile in tiles]
    if product.right.adjoint:
        contiguous = product.left.step == 1 and product.left.inner == product.depth
        few = contiguous and product.rows <= _FEW_ROWS
        return [_dots(node, context, product), *panels] if few else panels
    in_place = [_in_place(node, context, product, tile) for tile in tiles]
    # `tuning: fast` times the first two: these are the two ways, rather than two tiles of one way.
    return in_place if product.rows <= tiles[0].rows else [in_place[0], *panels, *in_place[1:]]


def _in_place(node: Node, context: spec.Context, product: Product, tile: Tile) -> spec.Candidate:
    """Return the candidate that reads the rows of the right side where they lie."""
    right = product.right
    launch = _gemm(node, context, product, tile, right.source, right.stride, right.batches, right.start)
    return spec.Candidate(f"rows_{tile.name}", (launch,))


def _with_panels(node: Node, context: spec.Context, product: Product, tile: Tile) -> spec.Candidate:
    """Two launches: the right side is packed in panels first, so that a tile reads memory in one run."""
    matrix = _panel_elements(product, tile)
    scratch = spec.Scratch("panels", product.right.matrices * matrix)
    pack = _pack(node, context, product, tile, scratch)
    batches = product.right.packed_batches(matrix)
    launch = _gemm(node, context, product, tile, scratch, tile.columns, batches)
    return spec.Candidate(f"panels_{tile.name}", (pack, launch))


def _with_constant(node: Node, context: spec.Context, product: Product, tile: Tile) -> spec.Candidate:
    matrix = _panel_elements(product, tile)
    weights = spec.PackedConstant(
        f"right{node.outputs[0]}",
        product.right.matrices * matrix,
        lambda: overlapping_panels(_matrices(product), tile.columns),
    )
    batches = product.right.packed_batches(matrix)
    launch = _gemm(node, context, product, tile, weights, tile.columns, batches)
    return spec.Candidate(f"constant_{tile.name}", (launch,))


def _panel_elements(product: Product, tile: Tile) -> int:
    return tile.panels(product.columns) * product.depth * tile.columns


def _matrices(product: Product) -> Floats:
    data = product.right.data
    if data is None:
        raise ValueError("the right side is not a constant")
    return data.swapaxes(1, 2) if product.right.adjoint else data


def overlapping_panels(matrices: Floats, width: int) -> Floats:
    """Pack [matrices, depth, columns] as [matrices, panels, depth, width], as `batch_matmul/pack.cl` does.

    Columns are padded with zeros to 16; the last panel overlaps its neighbour instead of being padded more.
    """
    columns = matrices.shape[2]
    channels = round_up(columns)
    padded = np.pad(matrices, ((0, 0), (0, 0), (0, channels - columns)))
    starts = [min(panel * width, channels - width) for panel in range(ceil_div(columns, width))]
    return np.stack([padded[:, :, start : start + width] for start in starts], axis=1)


def _pack(
    node: Node, context: spec.Context, product: Product, tile: Tile, target: spec.Scratch
) -> spec.Launch:
    right = product.right
    panels = tile.panels(product.columns)
    start = start_of("IN", right.extents, right.batches, "(m)", right.start)
    return context.launch(
        node,
        spec.function(
            "matmul/batch_matmul/pack.cl",
            spec.instance_name("batch_matmul_pack", f"n{tile.columns}"),
            {"TILE_N": tile.columns, "ADJOINT": right.adjoint, "IN(m)": start.expression},
            **start.parameters,
            K=product.depth,
            N=product.columns,
            CHANNELS=product.channels,
            IN_STRIDE=right.stride,
            **divisor("PANELS", panels),
            **divisor("BLOCKS", ceil_div(product.depth, LANES)),
        ),
        (right.source, target),
        right.matrices * panels * ceil_div(product.depth, LANES),
        spec.Work(f"{product.sizes} panels", moved=4 * (product.right_elements + target.elements)),
    )


def _gemm(
    node: Node,
    context: spec.Context,
    product: Product,
    tile: Tile,
    right: spec.Argument,
    right_row: int,
    right_batches: Sequence[int],
    right_start: int = 0,
) -> spec.Launch:
    """Return the product by register tiles; `right_row` and `right_batches` are the strides of the right
    side, `right_start` its first element.
    """
    left, (target,) = product.left, node.outputs
    starts, steps = product.starts(right_batches, right_start)
    return context.launch(
        node,
        spec.function(
            "matmul/batch_matmul/gemm.cl",
            spec.instance_name("batch_matmul_gemm", tile.name),
            spec.joined(starts, {"TILE_M": tile.rows, "TILE_N": tile.columns}),
            **steps,
            # The bytes of one matrix of the right side, whatever the number of batches.
            **tile.order(product.rows, product.columns, 4 * product.depth * product.columns),
            **divisor("TILES", tile.units(product.rows, product.columns)),
            M=product.rows,
            N=product.columns,
            K=product.depth,
            CHANNELS=product.channels,
            PACKED=right != product.right.source,
            INNER=left.inner,
            GROUPS=product.depth // left.inner,
            LEFT_ROW=left.row,
            LEFT_STEP=left.step,
            LEFT_OUTER=left.outer,
            RIGHT_ROW=right_row,
            OUT_STRIDE=context.layout(target).pixel_stride,
        ),
        (left.source, right, target),
        product.batch * tile.units(product.rows, product.columns),
        spec.Work(product.sizes, product.flops, product.bytes),
    )


def _dots(node: Node, context: spec.Context, product: Product) -> spec.Candidate:
    """Dot products of rows and columns, which both lie in one run."""
    right, (target,) = product.right, node.outputs
    starts, steps = product.starts(right.batches, right.start)
    launch = context.launch(
        node,
        spec.function(
            "matmul/batch_matmul/dot.cl",
            "f32_batch_matmul_dot",
            starts,
            **steps,
            M=product.rows,
            N=product.columns,
            K=product.depth,
            LEFT_ROW=product.left.row,
            RIGHT_ROW=right.stride,
            OUT_STRIDE=context.layout(target).pixel_stride,
            **divisor("BLOCKS", ceil_div(product.columns, LANES)),
        ),
        (product.left.source, right.source, target),
        product.batch * ceil_div(product.columns, LANES),
        spec.Work(product.sizes, product.flops, product.bytes),
    )
    return spec.Candidate("dots", (launch,))
