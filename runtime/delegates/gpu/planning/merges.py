"""Watches the passes: which operators they join to others, and which they remove, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runtime.delegates.gpu.graph.graph import Graph
from runtime.delegates.gpu.passes import Pass
from runtime.delegates.plan import Merged


@dataclass(frozen=True, slots=True)
class Optimised:
    """The graph behind the passes. `merged` holds operators that are a part of another's node."""

    graph: Graph
    merged: Mapping[int, Merged]
    removed: tuple[Merged, ...]


def optimised(graph: Graph, passes: Iterable[Pass]) -> Optimised:
    """Run the passes, and compare the graphs before and behind each by the operators of their nodes."""
    merged: dict[int, Merged] = {}
    removed: list[Merged] = []
    for one in passes:
        after = one.run(graph)
        before = {node.id: node.sources for node in graph.nodes}
        for node in after.nodes:
            # A new node stands for operators of the one that it was made from; only a known one can gain any.
            for operator in set(node.sources) - set(before.get(node.id, node.sources)):
                merged.setdefault(operator, Merged(operator, one.name, one.effect))
        gone = sorted(_operators(graph) - _operators(after))
        removed += [Merged(operator, one.name, one.effect) for operator in gone]
        graph = after
    return Optimised(graph, merged, tuple(sorted(removed, key=lambda found: found.operator)))


def _operators(graph: Graph) -> set[int]:
    return {operator for node in graph.nodes for operator in node.sources}
