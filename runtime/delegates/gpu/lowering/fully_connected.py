"""FULLY_CONNECTED: a product of rows and constant weights."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Graph, Node
from runtime.delegates.gpu.lowering.conv.family import constants_refusal
from runtime.delegates.gpu.lowering.conv.gemm import Product, product_candidates
from runtime.delegates.gpu.lowering.conv.packing import filter_matrix
from runtime.delegates.gpu.lowering.conv.shape import bias_of
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    NodeSpec,
    OperatorFacts,
    activation_of,
)
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    channels, depth = (facts.shape(0) or (1,))[-1], facts.shape(1)[1]
    if depth % channels:
        return Unsupported(f"rows of {depth} elements do not consist of whole pixels of {channels} channels")
    if facts.options.get("weights_format", 0):
        return Unsupported("shuffled weights have no kernel")
    return constants_refusal(facts)


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:3], {}, activation_of(facts))


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """A row of the product is one pixel, or several that lie behind each other."""
    source, weights, bias = (*node.inputs, None)[:3]
    if source is None or weights is None:
        raise ValueError("a fully connected layer has an input and weights")
    value, layout = context.value(source), context.layout(source)
    columns, depth = context.value(weights).shape
    pixels = depth // value.channels
    lanes = value.channels if pixels == 1 else layout.pixel_stride

    product = Product(
        rows=value.elements // depth,
        depth=pixels * lanes,
        columns=columns,
        row_stride=pixels * layout.pixel_stride,
        step=layout.channel_stride,
        matrix=lambda: filter_matrix(
            context.constant(weights).reshape(columns, 1, pixels, value.channels), lanes
        ),
        bias=lambda: bias_of(bias, context),
    )
    return product_candidates(node, context, product, "fully_connected")


def _reads_any_layout(node: Node, graph: Graph) -> bool:
    source, weights = node.inputs[:2]
    if source is None or weights is None:
        return False
    return graph.values[source].channels == graph.values[weights].shape[1]


FAMILY = Family(
    operators=(Op.FULLY_CONNECTED,),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    reads_any_layout=_reads_any_layout,
)
