"""A PAD in front of a window operation becomes that operation's explicit padding.

A convolution absorbs zeros. A max pool, whose own padding leaves the border out, absorbs -infinity or
the lowest float, which never win.
"""

from dataclasses import replace

from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.model.schema import BuiltinOperator

_PADS = frozenset({BuiltinOperator.PAD, BuiltinOperator.PADV2})
_CONVOLUTIONS = frozenset({BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D})
_LOWEST = -3.0e38
"""A padding value up to this one never wins against a float32 of a network: converters write -infinity or the
lowest float, -3.4e38, in more than one rounding. A higher bound would drop values that could be a maximum."""


def merge_padding(graph: Graph) -> Graph:
    """Fold each PAD whose readers are all window operations that can absorb it."""
    producers, consumers = graph.producers(), graph.consumers()
    merged = {
        node.id: node
        for node in graph.nodes
        if node.op in _PADS
        and node.outputs[0] not in graph.outputs
        and all(_takes_over(reader, node) for reader in consumers[node.outputs[0]])
    }
    nodes = []
    for node in graph.nodes:
        if node.id in merged:
            continue
        pad = producers.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        nodes.append(_with_padding(node, pad) if pad is not None and pad.id in merged else node)
    return graph.with_nodes(nodes)


def _takes_over(reader: Node, pad: Node) -> bool:
    paddings = pad.attributes["paddings"]
    # A window pads rows and columns of images alone.
    if len(paddings) != 4 or paddings[0] != (0, 0) or paddings[3] != (0, 0):
        return False
    # Whatever reads the padded values otherwise than under its window needs these themselves.
    if reader.inputs[:1] != pad.outputs or pad.outputs[0] in reader.reads[1:]:
        return False
    value = pad.attributes["value"]
    if reader.op in _CONVOLUTIONS:
        return bool(value == pad.attributes["zero"])
    unpadded = all(reader.attributes.get(f"pad_{side}") == 0 for side in ("top", "left", "bottom", "right"))
    return reader.op == BuiltinOperator.MAX_POOL_2D and bool(value <= _LOWEST) and unpadded


def _with_padding(node: Node, pad: Node) -> Node:
    _, (top, bottom), (left, right), _ = pad.attributes["paddings"]
    extra = {"pad_top": top, "pad_bottom": bottom, "pad_left": left, "pad_right": right}
    attributes = {**node.attributes, **{side: node.attributes[side] + count for side, count in extra.items()}}
    inputs = (pad.inputs[0], *node.inputs[1:])
    return replace(node, inputs=inputs, attributes=attributes, sources=(*pad.sources, *node.sources))
