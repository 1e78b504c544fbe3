"""Remove operations that change nothing: a reshape to the same shape, a concatenation of one part."""

from dataclasses import replace

from runtime.delegates.gpu.graph.graph import Graph, Node, Step
from runtime.model.schema import BuiltinOperator

_CANDIDATES = frozenset({BuiltinOperator.RESHAPE, BuiltinOperator.CONCATENATION})


def renamed(node: Node, names: dict[int, int]) -> Node:
    """`node` reading other values: `names` maps old to new ids."""
    steps = tuple(
        Step(step.op, tuple(names.get(v, v) for v in step.operands), step.parameters)
        for step in node.epilogue
    )
    inputs = tuple(None if v is None else names.get(v, v) for v in node.inputs)
    return replace(node, inputs=inputs, epilogue=steps)


def remove_identity(graph: Graph) -> Graph:
    """Let the readers of a removed node's result read its input instead.

    A node that makes an output of the graph stays: the output has memory of its own.
    """
    names: dict[int, int] = {}
    kept = []
    for original in graph.nodes:
        # Renamed first, so that the readers of a chain of identities get what the first of them read.
        node = renamed(original, names)
        if _is_identity(node, graph):
            (source,) = node.reads
            names[node.outputs[0]] = source
        else:
            kept.append(node)
    return graph.with_nodes(kept)


def _is_identity(node: Node, graph: Graph) -> bool:
    if node.op not in _CANDIDATES or len(node.reads) != 1 or node.outputs[0] in graph.outputs:
        return False
    return not node.epilogue and graph.values[node.reads[0]].shape == graph.values[node.outputs[0]].shape
