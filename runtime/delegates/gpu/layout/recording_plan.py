"""The memory plan of a recording, as plain data: a start may keep it, and a later one begins with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Graph, without_constants
from runtime.delegates.gpu.layout.memory import Placement, Reference, demand
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.lowering.spec import Check, Epilogue, Launch

READ_AHEAD = 256
"""Bytes behind a buffer that a kernel may read: a vector access that starts at the last element reaches 15
elements further, 120 bytes of int64, and the rest is for a kernel that reads ahead."""


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """The table of layers, and the sizes and places of everything in memory.

    `graph` has the inputs and outputs alone, `launches` nothing that they read. `offsets` are those of the
    graph's values in the arena, in bytes. Of constants there are the sizes of the buffers, and for each layer
    the number of its own in `buffers`. `needs` says how much memory that is, for a message of the driver's.
    """

    graph: Graph
    launches: tuple[Launch, ...]
    rows: Sequence[Sequence[int]]
    names: tuple[str, ...]
    arena_bytes: int
    offsets: Mapping[int, int]
    references: Mapping[int, Sequence[Reference]]
    checks: tuple[Check, ...]
    checks_offset: int
    constant_sizes: tuple[int, ...]
    buffers: tuple[int, ...]
    needs: str

    @property
    def constant_bytes(self) -> int:
        """The size of all constants."""
        return sum(self.constant_sizes)


def planned(placement: Placement, source: Source, device: Capabilities) -> RecordingPlan:
    """Return the plan of a placement, whose functions have the numbers of `source`."""
    graph = _ends(placement.graph)
    return RecordingPlan(
        graph=graph,
        # Without what they read: weights would otherwise be in memory twice.
        launches=tuple(replace(launch, args=(), epilogue=Epilogue()) for launch in placement.launches),
        rows=placement.rows(source),
        names=placement.names(source),
        arena_bytes=placement.arena.size,
        offsets={value: placement.offset_of(value) for value in graph.values},
        references=placement.references(),
        checks=placement.checks,
        checks_offset=placement.checks_offset if placement.checks else 0,
        constant_sizes=placement.constants.sizes,
        buffers=placement.constants.chosen,
        needs=demand(placement, device),
    )


def _ends(graph: Graph) -> Graph:
    """Return the graph's inputs and outputs, with the roots in whose buffers they lie, without nodes."""
    ends = {*graph.inputs, *graph.outputs}
    ends |= {graph.layouts[value].root for value in ends}
    bare = without_constants(graph)
    return replace(
        bare,
        nodes=(),
        values={value: bare.values[value] for value in sorted(ends)},
        layouts={value: graph.layouts[value] for value in sorted(ends)},
    )
