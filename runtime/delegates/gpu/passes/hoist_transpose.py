"""A TRANSPOSE of an element-wise result becomes transpositions of its operands, where moves made these.

Attention written for channels first adds what it has transposed, and transposes the sum back. In front of
the sum each transposition meets the one that made its operand, and `join_moves` makes one copy or none of
both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from runtime.delegates.gpu.graph.graph import Graph, Node, Value
from runtime.delegates.gpu.passes.remove_identity import renamed
from runtime.model.schema import BuiltinOperator as Op

_Producers: TypeAlias = Mapping[int, Node]
_Consumers: TypeAlias = Mapping[int, Sequence[Node]]


@dataclass(slots=True)
class _Hoisting:
    """The nodes so far, in order, and the values and node numbers that were added."""

    graph: Graph
    values: count[int]
    numbers: count[int]
    nodes: list[Node] = field(default_factory=list)
    added: list[Value] = field(default_factory=list)


def hoist_transpose(graph: Graph) -> Graph:
    """Rewrite TRANSPOSE(f(moved, moved, …)), f element by element, to f(TRANSPOSE(moved), …)."""
    producers, consumers = graph.producers(), graph.consumers()
    hoisted: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op != Op.TRANSPOSE or node.epilogue:
            continue
        (value,) = node.reads
        made = producers.get(value)
        # Whoever else reads the result needs it in the old order.
        if made is None or len(consumers[value]) > 1 or value in graph.outputs:
            continue
        if _may_follow(made, graph, producers, consumers):
            hoisted[made.id] = node
            # What it made comes from the element-wise node now, and is no move for those behind it.
            producers[node.outputs[0]] = made
    gone = {node.id for node in hoisted.values()}
    highest = max((node.id for node in graph.nodes), default=-1)
    state = _Hoisting(graph, count(graph.fresh_id()), count(highest + 1))
    for node in graph.nodes:
        if node.id in hoisted:
            _exchange(node, hoisted[node.id], state)
        elif node.id not in gone:
            state.nodes.append(node)
    return graph.with_nodes(state.nodes, state.added)


def _may_follow(node: Node, graph: Graph, producers: _Producers, consumers: _Consumers) -> bool:
    """Return True for an element-wise node whose operands are moves of its shape, or single numbers."""
    # An element-wise node reads all its operands in its steps.
    if node.inputs or not node.epilogue or node.epilogue[0].op != "LOAD":
        return False
    shape = graph.values[node.outputs[0]].shape
    whole = [value for value in node.reads if graph.values[value].elements > 1]
    return bool(whole) and all(
        graph.values[value].shape == shape and _is_moved(value, graph, producers, consumers)
        for value in whole
    )


def _is_moved(value: int, graph: Graph, producers: _Producers, consumers: _Consumers) -> bool:
    """Return True if a TRANSPOSE made the value, or one and RESHAPEs behind it, for nothing else."""
    while (made := producers.get(value)) is not None and not made.epilogue:
        if len(consumers[value]) > 1 or value in graph.outputs:
            return False
        if made.op == Op.TRANSPOSE:
            return True
        if made.op != Op.RESHAPE:
            return False
        (value,) = made.reads
    return False


def _exchange(node: Node, transpose: Node, state: _Hoisting) -> None:
    """Add a transposition of each operand, and behind them the element-wise node, which makes the result."""
    names: dict[int, int] = {}
    shape = state.graph.values[transpose.outputs[0]].shape
    for value in dict.fromkeys(node.reads):
        operand = state.graph.values[value]
        # A single number is broadcast, whatever the order of the axes.
        if operand.elements == 1:
            continue
        names[value] = next(state.values)
        state.added.append(replace(operand, id=names[value], shape=shape))
        state.nodes.append(
            replace(transpose, id=next(state.numbers), inputs=(value,), outputs=(names[value],))
        )
    state.nodes.append(replace(renamed(node, names), outputs=transpose.outputs))
