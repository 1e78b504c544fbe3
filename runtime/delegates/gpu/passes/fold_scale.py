"""A scale per channel in front of a pointwise convolution becomes a scale of its weights' rows.

The gate of a squeeze-and-excitation block multiplies a whole map, [1, H, W, C] by [1, 1, 1, C], in front of a
convolution 1x1 with few outputs. Scaling the C x N weights instead touches H * W / N times less memory.
"""

from dataclasses import replace

from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.model.schema import BuiltinOperator

_WORTHWHILE = 2
"""Fold where the map has at least this many times as many pixels as the convolution has outputs. The scaled
weights are written and read again in every run, which costs about as much memory traffic as it saves at 1."""


def fold_scale(graph: Graph) -> Graph:
    """Rewrite MUL(x, s) → CONV_2D 1x1; the convolution reads x, and s as its fourth input."""
    consumers = graph.consumers()
    folded: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        factors = _map_and_scale(node, graph)
        readers = consumers[node.outputs[0]]
        if factors is None or node.outputs[0] in graph.outputs or len(readers) != 1:
            continue
        (convolution,) = readers
        if _takes_scale(convolution, node.outputs[0], graph):
            x, scale = factors
            # Padded to two, because the scale must be the fourth input even without a bias.
            filter_and_bias = (*convolution.inputs[1:], None)[:2]
            sources = (*node.sources, *convolution.sources)
            inputs = (x, *filter_and_bias, scale)
            folded[convolution.id] = replace(convolution, inputs=inputs, sources=sources)
            gone.add(node.id)
    return graph.with_nodes(folded.get(node.id, node) for node in graph.nodes if node.id not in gone)


def _map_and_scale(node: Node, graph: Graph) -> tuple[int, int] | None:
    """Return the map and the scale of a node that is nothing but their product, else None."""
    # SATURATE stands for the fused activation NONE.
    if [step.op for step in node.epilogue] != ["LOAD", "MUL", "SATURATE"]:
        return None
    a, b = node.epilogue[0].operands[0], node.epilogue[1].operands[0]
    output = graph.values[node.outputs[0]]
    for x, scale in ((a, b), (b, a)):
        value = graph.values[scale]
        per_channel = value.pixels == 1 and value.channels == output.channels and not value.is_constant
        if per_channel and graph.values[x].shape == output.shape and output.pixels > 1:
            return x, scale
    return None


def _takes_scale(node: Node, source: int, graph: Graph) -> bool:
    if node.op != BuiltinOperator.CONV_2D or node.inputs[0] != source or node.reads.count(source) != 1:
        return False
    if "quantises" in node.attributes:
        # The scale of a quantised map is that of the map, the factor included.
        return False
    weights, before = graph.values[node.inputs[1] or 0], graph.values[source]
    outputs, height, width, channels = weights.shape
    a = node.attributes
    strides = (a["stride_h"], a["stride_w"], height, width)
    padded = any(a[f"pad_{side}"] for side in ("top", "left", "bottom", "right"))
    pointwise = strides == (1, 1, 1, 1) and not padded and channels == before.channels
    # A fourth input is a scale that has been folded already.
    return pointwise and len(node.inputs) <= 3 and before.pixels >= _WORTHWHILE * outputs
