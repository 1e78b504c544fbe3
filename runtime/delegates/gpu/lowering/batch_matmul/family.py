"""BATCH_MATMUL: products of the last two dimensions, the leading ones broadcast."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.epilogue import broadcast_shape
from runtime.delegates.gpu.graph import Graph, Node, Value
from runtime.delegates.gpu.lowering.batch_matmul.product import (
    LeftSide,
    Product,
    RightSide,
    candidates,
    placed,
)
from runtime.delegates.gpu.lowering.conv import gemm
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    NodeSpec,
    OperatorFacts,
)
from runtime.model.schema import BuiltinOperator as Op

_BATCH_AXES = 3
"""Batch dimensions that the kernels take apart, so ranks up to 5, which is LiteRT's bound too; more stay on
the CPU. Each costs a division by a constant for every tile."""


def _supports(facts: OperatorFacts) -> Unsupported | None:
    rank, most = max(len(facts.shape(0)), len(facts.shape(1))), _BATCH_AXES + 2
    return None if rank <= most else Unsupported(f"rank {rank} is more than {most}")


def _read(facts: OperatorFacts) -> NodeSpec:
    adjoints = {name: bool(facts.options.get(name, False)) for name in ("adj_x", "adj_y")}
    return NodeSpec(facts.operator.inputs[:2], adjoints)


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """The general product, or that of pixels and weights where there is one constant matrix."""
    product = _product(node, context)
    right = product.right
    if right.data is None or product.batch > 1:
        return candidates(node, context, product)
    matrix = right.data[0].T if right.adjoint else right.data[0]
    single = gemm.Product(
        rows=product.rows,
        depth=product.depth,
        columns=product.columns,
        row_stride=product.left.row,
        step=product.left.step,
        matrix=lambda: matrix,
        bias=lambda: None,
    )
    return gemm.product_candidates(node, context, single, "batch_matmul")


def _product(node: Node, context: Context) -> Product:
    x, z = node.inputs[:2]
    if x is None or z is None:
        raise ValueError("BATCH_MATMUL has two inputs")
    left, right, out = context.value(x), context.value(z), context.value(node.outputs[0])
    rows, columns = out.shape[-2:]
    batches = broadcast_shape(out.shape[:-2], _BATCH_AXES)
    # One matrix for all rows of all batches: they are the rows of one product.
    joined = prod(right.shape[:-2]) == 1 and not node.attributes["adj_x"]
    if joined:
        rows, batches = prod(batches) * rows, (1,) * _BATCH_AXES
    return Product(
        left=_left(left, context, adjoint=node.attributes["adj_x"], joined=joined),
        right=_right(right, context, adjoint=node.attributes["adj_y"]),
        batches=batches,
        rows=rows,
        depth=left.shape[-2] if node.attributes["adj_x"] else left.channels,
        columns=columns,
    )


def _left(value: Value, context: Context, *, adjoint: bool, joined: bool) -> LeftSide:
    source, layout = placed(value, context)
    steps = (layout.pixel_stride, layout.channel_stride)
    row, step = reversed(steps) if adjoint else steps
    matrix = value.shape[-2] * layout.pixel_stride
    batches = (0,) * _BATCH_AXES if joined else batch_steps(value, matrix)
    return LeftSide(source, batches, row, step, value.shape[-2] if adjoint else value.channels)


def _right(value: Value, context: Context, *, adjoint: bool) -> RightSide:
    matrices = prod(value.shape[:-2])
    data = None if value.data is None else value.data.reshape(matrices, *value.shape[-2:])
    _, layout = placed(value, context)
    return RightSide(value.id, batch_steps(value, 1), matrices, layout.pixel_stride, adjoint, data)


def batch_steps(value: Value, matrix: int) -> tuple[int, ...]:
    """Elements from one batch to the next in each batch dimension; 0 where the value is broadcast."""
    extents = broadcast_shape(value.shape[:-2], _BATCH_AXES)
    return tuple(
        matrix * prod(extents[axis + 1 :]) if extent > 1 else 0 for axis, extent in enumerate(extents)
    )


def _reads_any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    return True


FAMILY = Family(
    operators=(Op.BATCH_MATMUL,),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    reads_any_layout=_reads_any_layout,
)
