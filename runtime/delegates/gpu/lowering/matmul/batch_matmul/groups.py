"""Batches of matrix products by the tiled kernel of work-groups, the batch in the third dimension."""

from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.work_groups import QUAD
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.batch_matmul.product import Product
from runtime.delegates.gpu.lowering.matmul.conv.groups import GroupTile, choose_tile, tiles_for


def product_in_groups(node: Node, context: spec.Context, product: Product) -> spec.Candidate | None:
    """One launch; None where the left side's rows lie in several pieces, or the right side's out of line."""
    left, right, (target,) = product.left, product.right, node.outputs
    if left.inner != product.depth:
        return None
    if not right.adjoint and any(number % QUAD for number in (right.stride, right.start, *right.batches)):
        return None
    starts, steps = product.starts(right.batches, right.start)
    places = (left.row, left.start, *left.batches)
    aligned = left.step == 1 and left.row >= product.depth and not any(number % QUAD for number in places)

    def lower(tile: GroupTile) -> spec.Candidate:
        launch = context.launch(
            node,
            spec.function(
                "matmul/conv/gemm_groups.cl",
                spec.instance_name("groups_batch_matmul", tile.name),
                spec.joined(
                    # That file calls `LEFT(b)` and `RIGHT(b)` `LEFT_START(b)` and `RIGHT_START(b)`.
                    {name.replace("(", "_START("): text for name, text in starts.items()},
                    {
                        "LEFT_ROWS": 1,
                        "LEFT_WINDOW": 0,
                        "MEMBERS": 0,
                        "PHASES": 0,
                        "MATRIX": 0,
                        "LEFT_SCALED": 0,
                        "VECTOR_LOADS": aligned,
                        "RIGHT_PACKED": 0,
                        "RIGHT_COLUMNS": right.adjoint,
                        "ROWS": tile.rows,
                        "VECTORS": tile.vectors,
                        "TILE_K": tile.depth,
                        "SPLIT": 0,
                    },
                ),
                tile.work_group,
                **steps,
                M=product.rows,
                N=product.columns,
                K=product.depth,
                CHANNELS=product.channels,
                LEFT_ROW=left.row,
                LEFT_STEP=left.step,
                RIGHT_ROW=right.stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
            ),
            (left.source, context.pointer(right.source), target),
            (*tile.groups(product.rows, product.columns), product.batch),
            spec.Work(product.sizes, product.flops, product.bytes),
        )
        return spec.Candidate(f"groups_{tile.name}", (launch,))

    tile = choose_tile(product.rows, product.columns, product.batch, 1, tiles_for(node, context.device))
    return context.first_accepted(map(lower, tile.and_smaller()))
