"""Element-wise nodes become the epilogue of the kernel that produces one of their operands.

Each saves a launch and a pass over memory: the value is still in a register when the step is applied.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from runtime.delegates.gpu.graph.epilogue import MAX_OPERANDS
from runtime.delegates.gpu.graph.graph import Graph, Node, Step

_SWAPPED = {
    "ADD": "ADD",
    "MUL": "MUL",
    "MAXIMUM": "REVERSE_MAXIMUM",
    "REVERSE_MAXIMUM": "MAXIMUM",
    "MINIMUM": "REVERSE_MINIMUM",
    "REVERSE_MINIMUM": "MINIMUM",
    "SQUARED_DIFFERENCE": "SQUARED_DIFFERENCE",
    "SUB": "REVERSE_SUB",
    "REVERSE_SUB": "SUB",
    "DIV": "REVERSE_DIV",
    "REVERSE_DIV": "DIV",
}
"""Step a(x, y) → the step b with b(y, x) = a(x, y), so that either operand can be the running value."""


def fuse_epilogue(graph: Graph, fusable: Callable[[Node, Graph], bool]) -> Graph:
    """Fuse each element-wise node into the producer of an operand that nothing else reads.

    An element-wise node starts with the step LOAD. `fusable` says which producers apply an epilogue. The
    fused node takes the place of the element-wise one, where all its operands exist.
    """
    consumers = graph.consumers()
    written = {value: position for position, node in enumerate(graph.nodes) for value in node.outputs}
    current: dict[int, Node] = {}
    order: list[int] = []
    producer_of: dict[int, int] = {}
    for node in graph.nodes:
        fused, replaced = node, None
        for steps in _orders(node, graph, written):
            source = steps[0].operands[0]
            producer = current.get(producer_of.get(source, -1))
            if producer is None or not fusable(producer, graph) or source in graph.outputs:
                continue
            operands = sum(len(step.operands) for step in (*producer.epilogue, *steps[1:]))
            if len(consumers[source]) > 1 or operands > MAX_OPERANDS:
                continue
            # x * f(x): the fused value would have to be read before it is stored.
            if any(source in step.operands for step in steps[1:]):
                continue
            fused, replaced = _joined(producer, node, steps), producer.id
            break
        if replaced is not None:
            del current[replaced]
            order.remove(replaced)
        current[fused.id] = fused
        order.append(fused.id)
        producer_of.update(dict.fromkeys(fused.outputs, fused.id))
    return graph.with_nodes(current[key] for key in order)


def _joined(producer: Node, node: Node, steps: tuple[Step, ...]) -> Node:
    return replace(
        producer,
        outputs=node.outputs,
        epilogue=(*producer.epilogue, *steps[1:]),
        sources=(*producer.sources, *node.sources),
    )


def _orders(node: Node, graph: Graph, written: Mapping[int, int]) -> list[tuple[Step, ...]]:
    """Return the node's steps in each order that begins with an operand of the output's shape.

    The operand written last comes first: its producer runs last, when the other operand exists already.
    """
    if not node.epilogue or node.epilogue[0].op != "LOAD":
        return []
    first, *rest = node.epilogue
    shape = graph.values[node.outputs[0]].shape
    found = []
    if graph.values[first.operands[0]].shape == shape:
        found.append(node.epilogue)
    if rest and rest[0].op in _SWAPPED and graph.values[rest[0].operands[0]].shape == shape:
        second = rest[0]
        swapped = Step(_SWAPPED[second.op], first.operands, second.parameters)
        found.append((Step("LOAD", second.operands), swapped, *rest[1:]))
    return sorted(found, key=lambda steps: written.get(steps[0].operands[0], -1), reverse=True)
