"""FULLY_CONNECTED: a product of rows and weights, constant or computed."""

from dataclasses import dataclass, replace

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Graph, Layout, Node, Step, Value
from runtime.delegates.gpu.graph.work_groups import suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.batch_matmul import product as computed
from runtime.delegates.gpu.lowering.matmul.batch_matmul.groups import product_in_groups as batch_in_groups
from runtime.delegates.gpu.lowering.matmul.conv import gemm
from runtime.delegates.gpu.lowering.matmul.conv.groups import product_in_groups
from runtime.delegates.gpu.lowering.matmul.conv.shape import bias_of
from runtime.delegates.gpu.lowering.matmul.conv.weights import filter_matrix, weights_of
from runtime.delegates.gpu.lowering.matmul.integer_gemm.dynamic_range import Rows, dense_rows, is_quantised
from runtime.delegates.gpu.lowering.movement.reshape import dense_copy
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if facts.options.get("weights_format", 0):
        return Unsupported("shuffled weights have no kernel")
    if spec.activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    columns = facts.shape(1)[0]
    if _bias_is_added(facts) and (facts.shape(2) or (1,))[-1] != columns:
        return Unsupported(f"a bias of shape {list(facts.shape(2))} behind {columns} columns has no kernel")
    return None


def _bias_is_added(facts: spec.OperatorFacts) -> bool:
    """Return True if the bias is a step behind the product; else it is packed with the weights, or absent."""
    return facts.has_input(2) and (facts.constant(1) is None or facts.constant(2) is None)


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    source, weights, bias = (*facts.operator.inputs, -1)[:3]
    if _bias_is_added(facts):
        return spec.NodeSpec((source, weights, -1), {}, spec.activation_of(facts), (Step("ADD", (bias,)),))
    return spec.NodeSpec((source, weights, bias), {}, spec.activation_of(facts))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The input as `count` rows of `depth` elements.

    A row is `pixels` pixels of `channels` channels, in a layout; `step` is the distance of rows in elements.
    """

    source: spec.Argument
    count: int
    depth: int
    pixels: int
    channels: int
    layout: Layout

    @property
    def step(self) -> int:
        return self.pixels * self.layout.pixel_stride


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the product, behind a copy of the input if its rows do not consist of whole pixels."""
    source, weights, bias = node.filtered
    rows, copies = _rows(node, context, context.value(source), context.value(weights).shape[1])
    matrix = context.value(weights)
    if matrix.is_constant:
        found = _with_constant(node, context, rows, matrix, bias)
        # These launches read the node's input, of which the rows may be a copy.
        read = {source: rows.source}
        found = [replace(c, launches=tuple(launch.reading(read) for launch in c.launches)) for c in found]
    else:
        product = _computed(context, rows, matrix)
        grouped = batch_in_groups(node, context, product) if suits_groups(context.device) else None
        found = computed.candidates(node, context, product) if grouped is None else [grouped]
    return [replace(candidate, launches=(*copies, *candidate.launches)) for candidate in found]


def _rows(
    node: Node, context: spec.Context, value: Value, depth: int
) -> tuple[_Rows, tuple[spec.Launch, ...]]:
    """Return the rows, and the launches that must come first."""
    source, layout = computed.placed(value, context)
    count = value.elements // depth
    if depth % value.channels == 0:
        return _Rows(source, count, depth, depth // value.channels, value.channels, layout), ()
    dense = spec.Scratch("rows", value.elements)
    copy = dense_copy(source, layout, value, dense, node.sources, context.device)
    return _Rows(dense, count, depth, 1, depth, Layout(value.id, 0, depth)), (copy,)


def _with_constant(
    node: Node, context: spec.Context, rows: _Rows, weights: Value, bias: int | None
) -> list[spec.Candidate]:
    """Weights are packed on the host; padded lanes within a row get weights of zero."""
    if is_quantised(node, context):
        given = Rows.of_pixels(rows.source, rows.count, rows.pixels, rows.channels, rows.layout)
        quantised = dense_rows(node, context, weights, given, lambda: bias_of(bias, context))
        if quantised is not None:
            return [quantised]
    columns = weights.shape[0]
    # A row of several pixels is read straight through, including the padded lanes between them.
    lanes = rows.channels if rows.pixels == 1 else rows.layout.pixel_stride
    product = gemm.Product(
        rows=rows.count,
        depth=rows.pixels * lanes,
        columns=columns,
        row_stride=rows.step,
        step=rows.layout.channel_stride,
        weights=weights_of(weights, 0, lambda: bias_of(bias, context)).arranged(
            lambda codes: filter_matrix(codes.reshape(columns, 1, rows.pixels, rows.channels), lanes)
        ),
    )
    if suits_groups(context.device):
        return list(product_in_groups(node, context, product))
    return gemm.product_candidates(node, context, product)


def _computed(context: spec.Context, rows: _Rows, weights: Value) -> computed.Product:
    """Weights [columns, depth] are an adjoint right side; where rows have padded lanes, pixels are read."""
    columns, depth = weights.shape
    dense = rows.layout.pixel_stride == rows.channels and rows.layout.channel_stride == 1
    inner, outer = (depth, 0) if dense else (rows.channels, rows.layout.pixel_stride)
    left = computed.LeftSide(
        rows.source, (0, 0, 0), rows.step, rows.layout.channel_stride, inner=inner, outer=outer
    )
    right = computed.RightSide(
        weights.id, (1, 1, 1), (0, 0, 0), context.layout(weights.id).pixel_stride, adjoint=True
    )
    return computed.Product(left, right, (1, 1, 1), rows.count, depth, columns)


def _reads_any_layout(node: Node, graph: Graph) -> bool:
    """Return False for rows of several pixels by constant weights, which are packed for padded lanes."""
    source, weights, _ = node.filtered
    channels, matrix = graph.values[source].channels, graph.values[weights]
    depth = matrix.shape[1]
    # Rows of other than whole pixels are copied to dense ones first, from any layout.
    return not matrix.is_constant or channels == depth or depth % channels > 0


FAMILY = spec.Family(
    operators=(Op.FULLY_CONNECTED,),
    read=_read,
    lower=lower,
    supports=_supports,
    weights=(1,),
    epilogue=True,
    reads_any_layout=_reads_any_layout,
)
