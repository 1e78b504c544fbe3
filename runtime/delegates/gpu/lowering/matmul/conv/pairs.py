"""Products of pixels and weights in pairs of bfloat16, where the device multiplies and adds them at once."""

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile
from runtime.delegates.gpu.lowering.matmul.conv.weights import Weights, panels

_LEAST_COLUMNS = 2 * LANES
"""Columns from which on a product gains more than its input costs to be rounded: each number that is rounded
then serves two vectors of weights. Chosen; smaller rounds what hardly anything is multiplied with."""


def suits_pairs(context: spec.Context, weights: Weights, columns: int) -> bool:
    """Return True if the device has the instruction, and the weights are bfloat16 and many enough."""
    is_narrow = weights.type is WeightType.BF16 and columns >= _LEAST_COLUMNS
    return is_narrow and context.device.multiplies_bf16


def in_pairs(
    node: Node,
    context: spec.Context,
    weights: Weights,
    tile: Tile,
    shape: tuple[int, int, int],
    strides: tuple[int, int],
) -> spec.Candidate:
    """Two launches: the input is rounded to rows of pairs, which the product then reads.

    `shape` is rows, depth and columns of the product, `strides` are the input's, of rows and along one.
    """
    source, (target,) = node.first, node.outputs
    rows, depth, columns = shape
    pairs = spec.Scratch("pairs", rows * ceil_div(depth, 2), ElementType.I32)
    count, width = tile.panels(columns), tile.columns
    packed = weights.panels(
        f"weights{target}", count, 2 * ceil_div(depth, 2), width, lambda codes: pair_panels(codes, width)
    )
    note = f"{rows}x{depth}x{columns}"
    instance = spec.function(
        "matmul/conv/bf16_pairs.cl",
        "f32_gemm_bf16_pairs",
        {},
        K=depth,
        PAIRS=ceil_div(depth, 2),
        IN_STRIDE=strides[0],
        IN_STEP=strides[1],
    )
    rounding = context.launch(
        node,
        instance,
        (source, pairs),
        rows,
        spec.Work(f"{note} pairs", moved=4 * rows * depth + pairs.bytes),
    )
    instance = spec.function(
        "matmul/conv/gemm_bf16.cl",
        spec.instance_name("gemm_pairs", tile.name, weights.type),
        {"TILE_M": tile.rows, "TILE_N": width, "WEIGHT": weights.type.value},
        M=rows,
        PAIRS=ceil_div(depth, 2),
        CHANNELS=round_up(columns),
        **context.strides(OUT=target),
        **tile.order(rows, columns, packed.bytes),
    )
    product = context.launch(
        node,
        instance,
        (pairs, packed, target),
        tile.units(rows, columns),
        spec.Work.of_product(*shape, packed.bytes + pairs.bytes + 4 * rows * columns),
    )
    return spec.Candidate(f"pairs_{tile.name}", (rounding, product))


def pair_panels(matrix: spec.Array, width: int) -> spec.Array:
    """Pack a matrix [K, N] as [panels, K, width], K made even, with neighbours along K side by side."""
    padded = np.pad(matrix, ((0, len(matrix) % 2), (0, 0)))
    found = panels(padded, width)
    count, depth, _ = found.shape
    return found.reshape(count, depth // 2, 2, width).swapaxes(2, 3).reshape(count, depth, width)
