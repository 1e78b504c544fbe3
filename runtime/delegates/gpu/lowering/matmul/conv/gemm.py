"""Products of pixels and weights: 1x1 convolutions and fully connected layers of one or many rows."""

from dataclasses import dataclass

from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.pairs import in_pairs, suits_pairs
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, best_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import Weights, panels

_ROW_TILES = (64, 32, 16)
"""Columns of a unit of a one-row product, the widest first. A wider panel streams its weights in longer runs,
a narrower one leaves more units for the workers; all are multiples of the vector's 16 floats."""

_ROW_SPLIT = {64: 2, 32: 4, 16: 8}
"""Columns of a unit of a one-row product → sums per column. Every row gives 8 vectors of sums in flight,
which hide the latency of a multiply-add (`_FEWEST_CHAINS` of `tiles.py`); fewer wait for each other, more
only add the work of joining them. Narrower registers need fewer vectors for as many registers."""

_UNITS_PER_WORKER = 4
"""Units of a one-row product that every worker should get, at least. More even out workers of unlike speed
and make the panels narrower."""


@dataclass(frozen=True, slots=True)
class Product:
    """The product out[p, n] = bias[n] + sum over k of in[p * row_stride + k * step] * weights[k, n].

    p < `rows`, k < `depth`, n < `columns`; `row_stride` and `step` are elements of the input. `weights` holds
    the matrix [depth, columns] and the bias.
    """

    rows: int
    depth: int
    columns: int
    row_stride: int
    step: int
    weights: Weights

    def panels(self, name: str, width: int) -> spec.PackedConstant:
        """Pack the weights for panels of `width` columns."""
        count = ceil_div(self.columns, width)
        return self.weights.panels(name, count, self.depth, width, lambda codes: panels(codes, width))

    @property
    def weight_bytes(self) -> int:
        """Size of the weights."""
        return self.depth * self.columns * self.weights.type.bits // 8

    @property
    def work(self) -> spec.Work:
        """The operations of all its numbers, each of which is read or written once."""
        moved = self.weight_bytes + 4 * self.rows * (self.depth + self.columns)
        return spec.Work.of_product(self.rows, self.depth, self.columns, moved)


def product_candidates(node: Node, context: spec.Context, product: Product) -> list[spec.Candidate]:
    """Return the candidates for a product that is the whole of `node`."""
    if product.rows == 1:
        return [row(node, context, product, _row_width(product, context))]
    tiles = best_tiles(product.rows, product.columns, product.depth, context.device)
    found = [gemm(node, context, product, tile) for tile in tiles]
    if not suits_pairs(context, product.weights, product.columns):
        return found
    shape, strides = (product.rows, product.depth, product.columns), (product.row_stride, product.step)
    # First, as the probe has found pairs to be faster than floats on this device (`Trial.BF16_PACE`).
    return [in_pairs(node, context, product.weights, tiles[0], shape, strides), *found]


def gemm(node: Node, context: spec.Context, product: Product, tile: Tile) -> spec.Candidate:
    """One launch in register tiles of several rows: each weight that is loaded serves all rows of a tile."""
    source, (target,) = node.first, node.outputs
    weights = product.panels(f"weights{target}", tile.columns)
    return spec.Candidate(
        f"gemm_{tile.name}",
        (
            context.launch(
                node,
                spec.function(
                    "matmul/conv/gemm.cl",
                    spec.instance_name("gemm", tile.name, product.weights.type),
                    {"TILE_M": tile.rows, "TILE_N": tile.columns, "WEIGHT": product.weights.type.value},
                    M=product.rows,
                    K=product.depth,
                    CHANNELS=round_up(product.columns),
                    IN_STRIDE=product.row_stride,
                    IN_STEP=product.step,
                    **context.strides(OUT=target),
                    **tile.order(product.rows, product.columns, product.weight_bytes),
                ),
                (source, weights, target),
                tile.units(product.rows, product.columns),
                product.work,
            ),
        ),
    )


def _row_width(product: Product, context: spec.Context) -> int:
    """Return the widest unit, in columns, that leaves some units for each worker."""
    enough = _UNITS_PER_WORKER * context.device.compute_units
    return next((width for width in _ROW_TILES if product.columns >= enough * width), _ROW_TILES[-1])


def row(node: Node, context: spec.Context, product: Product, width: int) -> spec.Candidate:
    """One launch for a product of one row, `width` columns for each unit.

    Nothing is used twice, so memory bounds it; the weights lie in the order in which they are read.
    """
    source, (target,) = node.first, node.outputs
    split = max(1, _ROW_SPLIT[width] * min(context.device.vector_floats, LANES) // LANES)
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/gemm_row.cl",
            spec.instance_name("gemm_row", f"n{width}", product.weights.type),
            {"TILE_N": width, "SPLIT": split, "WEIGHT": product.weights.type.value},
            K=product.depth,
            CHANNELS=round_up(product.columns),
            IN_STEP=product.step,
        ),
        (source, product.panels(f"weights{target}", width), target),
        ceil_div(product.columns, width),
        product.work,
    )
    return spec.Candidate(f"row_n{width}", (launch,))
