"""Decides which buffers hold fp16 in place of float32, so that kernels move half the bytes.

Arithmetic stays that of floats: a kernel of work-groups widens what it loads and rounds what it stores
(`kernels/halves.cl`), where its text reaches its buffers by LOAD, LOAD4 and STORE4 alone. A buffer holds fp16
where this is so of every launch that reads or writes it. What callers see keeps its type, as do the model's
inputs, outputs and variables, constants, and what a launch keeps for itself.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import HALF_BYTES, LINE, Graph
from runtime.delegates.gpu.layout.source import kernel_source
from runtime.delegates.gpu.lowering.spec import Argument, Candidate, Launch, LineOf

_OTHER_ACCESS: Final = re.compile(r"\b(?:STORE|(?:LOAD|STORE)_WORDS?2?|LOAD_BYTE)\(|__global")
"""An access to a buffer of a kernel of work-groups that halves do not have: of one number that is stored, or
of words and bytes as they are."""


def stored_in_halves(
    graph: Graph, alternatives: Sequence[Sequence[Candidate]], device: Capabilities
) -> tuple[Graph, list[list[Candidate]]]:
    """Return the graph with its buffers of fp16, and the launches of all nodes, which know of them.

    Nothing changes on a device that does not store halves.
    """
    nodes = [list(candidates) for candidates in alternatives]
    if not device.stores_halves:
        return graph, nodes
    launches = [launch for node in nodes for candidate in node for launch in candidate.launches]
    halved = replace(graph, halves=_roots(graph, launches))
    return halved, [[_rewritten(candidate, halved) for candidate in node] for node in nodes]


def _roots(graph: Graph, launches: Iterable[Launch]) -> frozenset[int]:
    """Return the roots of the buffers that every launch can find in halves."""
    used: set[int] = set()
    kept = {graph.layouts[value].root for value in (*graph.inputs, *graph.outputs)}
    kept |= {
        layout.root
        for value, layout in graph.layouts.items()
        if graph.values[value].type is not ElementType.F32
    }
    for launch in launches:
        knows = launch.instance.work_group is not None and _knows_halves(launch.instance.source)
        for pointer in _pointers(launch):
            value = pointer.value if isinstance(pointer, LineOf) else pointer
            if not isinstance(value, int):
                continue
            layout = graph.layouts[value]
            used.add(layout.root)
            # In fp16, too, a part of a concatenation must begin on a line.
            if not knows or isinstance(pointer, LineOf) or layout.offset * HALF_BYTES % LINE:
                kept.add(layout.root)
    return frozenset(used - kept)


@cache
def _knows_halves(source: str) -> bool:
    return _OTHER_ACCESS.search(kernel_source(source)) is None


def _pointers(launch: Launch) -> tuple[Argument, ...]:
    return (*launch.args, *launch.epilogue.operands)


def _rewritten(candidate: Candidate, graph: Graph) -> Candidate:
    return replace(candidate, launches=tuple(_with_halves(launch, graph) for launch in candidate.launches))


def _with_halves(launch: Launch, graph: Graph) -> Launch:
    halves = {
        place: pointer
        for place, pointer in enumerate(_pointers(launch))
        if isinstance(pointer, int) and graph.is_half(pointer)
    }
    # The bytes of a launch count what it computes from and to, and no operand of its epilogue.
    counted = {value for place, value in halves.items() if place < len(launch.args)}
    saved = sum(graph.values[value].elements * HALF_BYTES for value in counted)
    return replace(launch, halves=tuple(halves), bytes=max(launch.bytes - saved, 0))
