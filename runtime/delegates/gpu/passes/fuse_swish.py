"""The product x * LOGISTIC(x) becomes one SWISH step.

Both factors depend on x, so neither could be fused into x's producer; one step of x alone can.
"""

from dataclasses import replace

from runtime.delegates.gpu.graph.graph import Graph, Node, Step


def fuse_swish(graph: Graph) -> Graph:
    """Rewrite MUL(x, LOGISTIC(x)); the LOGISTIC goes where nothing else reads it."""
    producers, consumers = graph.producers(), graph.consumers()
    rewritten: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        for x, gate in _factors(node):
            logistic = producers.get(gate)
            if logistic is None or logistic.epilogue != (Step("LOAD", (x,)), Step("LOGISTIC")):
                continue
            if len(consumers[gate]) > 1 or gate in graph.outputs:
                continue
            steps = (Step("LOAD", (x,)), Step("SWISH"), *node.epilogue[2:])
            rewritten[node.id] = replace(node, epilogue=steps, sources=(*logistic.sources, *node.sources))
            gone.add(logistic.id)
    return graph.with_nodes(rewritten.get(node.id, node) for node in graph.nodes if node.id not in gone)


def _factors(node: Node) -> list[tuple[int, int]]:
    """(x, gate) both ways round, where the node starts with LOAD a, MUL b."""
    if len(node.epilogue) < 2 or node.epilogue[0].op != "LOAD" or node.epilogue[1].op != "MUL":
        return []
    (a,), operands = node.epilogue[0].operands, node.epilogue[1].operands
    return [(a, operands[0]), (operands[0], a)]
