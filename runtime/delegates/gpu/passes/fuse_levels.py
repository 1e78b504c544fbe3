"""Functions of levels behind one another become one table: f(g(x)), and with two operands f(x, g(x))."""

from dataclasses import replace

import numpy as np

from runtime.delegates.gpu.graph.graph import Graph, Node

_LEVELS = 256
"""Levels of 8 bits: entries of a table for each operand."""


def fuse_levels(graph: Graph) -> Graph:
    """Join tables of levels where nothing else reads what stands between them."""
    producers, consumers = graph.producers(), graph.consumers()
    rewritten: dict[int, Node] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        for operand in dict.fromkeys(node.inputs if "table" in node.attributes else ()):
            inner = None if operand is None else producers.get(operand)
            inner = None if inner is None else rewritten.get(inner.id, inner)
            if inner is None or not _is_of_one(inner) or operand in graph.outputs:
                continue
            if {consumer.id for consumer in consumers[inner.outputs[0]]} != {node.id}:
                continue
            outer = rewritten.get(node.id, node)
            # The joined table has a single operand: f(g(x)) or f(x, g(x)), but not f(y, g(x)).
            if not {*outer.inputs} <= {operand, *inner.inputs}:
                continue
            rewritten[node.id] = _joined(outer, inner)
            gone.add(inner.id)
    return graph.with_nodes(rewritten.get(node.id, node) for node in graph.nodes if node.id not in gone)


def _is_of_one(node: Node) -> bool:
    return "table" in node.attributes and len(node.inputs) == 1 and not node.epilogue


def _joined(outer: Node, inner: Node) -> Node:
    """Return the outer function with the inner one's operand alone."""
    (operand,) = inner.inputs
    between = np.frombuffer(inner.attributes["table"], np.uint8)
    indices = {operand: np.arange(_LEVELS, dtype=np.uint8), inner.outputs[0]: between}
    table = np.frombuffer(outer.attributes["table"], np.uint8).reshape((_LEVELS,) * len(outer.inputs))
    joined = table[tuple(indices[each] for each in outer.inputs)]
    attributes = {"table": joined.tobytes()}
    return replace(outer, inputs=(operand,), attributes=attributes, sources=(*inner.sources, *outer.sources))
