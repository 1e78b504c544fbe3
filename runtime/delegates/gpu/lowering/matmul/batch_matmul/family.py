"""BATCH_MATMUL: products of the last two dimensions, the leading ones broadcast."""

from dataclasses import dataclass
from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.epilogue import broadcast_shape
from runtime.delegates.gpu.graph.graph import Node, Value
from runtime.delegates.gpu.graph.work_groups import suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.batch_matmul.groups import product_in_groups
from runtime.delegates.gpu.lowering.matmul.batch_matmul.product import (
    LeftSide,
    Product,
    RightSide,
    candidates,
    placed,
    row_major,
)
from runtime.delegates.gpu.lowering.matmul.conv import gemm, groups
from runtime.delegates.gpu.lowering.matmul.conv.weights import weights_of
from runtime.delegates.gpu.lowering.movement.copies import element_strides
from runtime.model.schema import BuiltinOperator as Op

_BATCH_AXES = 3
"""Batch dimensions that the kernels take apart, so ranks up to 5, which is LiteRT's bound too; more stay on
the CPU. Each costs a division by a constant for every tile."""


def supports(facts: spec.OperatorFacts) -> Unsupported | None:
    """Return why the product cannot be run, whatever the type of its elements; None if it can."""
    rank, most = max(len(facts.shape(0)), len(facts.shape(1))), _BATCH_AXES + 2
    return None if rank <= most else Unsupported(f"rank {rank} is more than {most}")


def read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Return the operands and the attributes `adj_x` and `adj_y`."""
    adjoints = {name: bool(facts.options.get(name, False)) for name in ("adj_x", "adj_y")}
    return spec.NodeSpec(facts.operator.inputs[:2], adjoints)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the general product, or that of pixels and weights if there is one constant matrix."""
    product = product_of(node, context)
    right = product.right
    if right.data is None or product.batch > 1:
        grouped = product_in_groups(node, context, product) if suits_groups(context.device) else None
        return candidates(node, context, product) if grouped is None else [grouped]
    value = context.value(right.source)
    # The dimension that counts columns, which are the lines of an adjoint matrix.
    outputs = len(value.shape) - (2 if right.adjoint else 1)

    def matrix(codes: spec.Array) -> spec.Array:
        only = codes.reshape(codes.shape[-2:])
        return only.T if right.adjoint else only

    single = gemm.Product(
        rows=product.rows,
        depth=product.depth,
        columns=product.columns,
        row_stride=product.left.row,
        step=product.left.step,
        weights=weights_of(value, outputs, lambda: None).arranged(matrix),
    )
    if suits_groups(context.device):
        return groups.product_in_groups(node, context, single)
    return gemm.product_candidates(node, context, single)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """An operand as matrices of `shape` in three batch dimensions of `extents`.

    `batches`, `line` and `step` are elements from one matrix to the next in each batch dimension (0 for a
    broadcast), from line to line, and within a line; the first matrix begins at element `start`.
    """

    source: spec.Argument
    extents: tuple[int, ...]
    batches: tuple[int, ...]
    shape: tuple[int, ...]
    line: int
    step: int
    start: int = 0


def _matrices(node: Node, name: str, context: spec.Context, value: Value) -> _Matrices:
    """Operand `x` or `z` as the product reads it, in front of the moves that `fold_transpose` folded."""
    source, layout = placed(value, context)
    strides = element_strides(value, layout)
    places = node.attributes.get(f"{name}_places")
    if places is None:
        extents = node.attributes.get("batches", broadcast_shape(value.shape[:-2], _BATCH_AXES))
        batches = row_major(extents, value.shape[-2] * layout.pixel_stride)
        return _Matrices(source, extents, batches, value.shape[-2:], *strides[-2:])
    *steps, line, step = (0 if place is None else place.step * strides[place.axis] for place in places)
    shape = tuple(1 if place is None else place.extent for place in places[-2:])
    wide = (0,) * (_BATCH_AXES - len(steps)) + tuple(steps)
    start = sum(count * strides[axis] for axis, count in node.attributes[f"{name}_starts"])
    return _Matrices(source, node.attributes["batches"], wide, shape, line, step, start)


def product_of(node: Node, context: spec.Context) -> Product:
    """Return the product with the strides by which its operands are read."""
    x, z, _ = node.filtered
    left = _matrices(node, "x", context, context.value(x))
    right = _matrices(node, "z", context, context.value(z))
    out, adjoint = context.value(node.outputs[0]), node.attributes["adj_x"]
    rows, columns = out.shape[-2:]
    batches = node.attributes.get("batches", broadcast_shape(out.shape[:-2], _BATCH_AXES))
    # One matrix for all rows of all batches: they are the rows of one product.
    # Not with an adjoint left side, whose rows are not evenly spaced across batches.
    joined = prod(right.extents) == 1 and not adjoint
    if joined:
        rows, batches = prod(batches) * rows, (1,) * _BATCH_AXES
    depth = left.shape[0] if adjoint else left.shape[1]
    row, step = (left.step, left.line) if adjoint else (left.line, left.step)
    steps = (0,) * _BATCH_AXES if joined else left.batches
    side = LeftSide(left.source, steps, row, step, inner=depth, start=left.start)
    return Product(side, _right(node, context.value(z), right), batches, rows, depth, columns)


def _right(node: Node, value: Value, right: _Matrices) -> RightSide:
    """Lines run along the value's last dimension: columns, where one of an adjoint and a transposition is."""
    places, adjoint = node.attributes.get("z_places"), node.attributes["adj_y"]
    data = None if value.data is None else value.data.reshape(-1, *right.shape)
    within = None if places is None else places[-1]
    last = (len(value.shape) - 1, 1)
    # The folded moves have turned the matrix unless its lines still run along the value's last dimension.
    turned = places is not None and (within is None or (within.axis, within.step) != last)
    stride = right.step if turned else right.line
    return RightSide(value.id, right.extents, right.batches, stride, adjoint != turned, data, right.start)


FAMILY = spec.Family(
    operators=(Op.BATCH_MATMUL,),
    read=read,
    lower=lower,
    supports=supports,
    weights=(1,),
    epilogue=True,
    reads_any_layout=lambda _node, _graph: True,
)
