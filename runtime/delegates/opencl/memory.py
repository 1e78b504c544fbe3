"""Lifetimes → offsets in one arena. Pure: greedy by size, as LiteRT's `greedy_by_size_assignment`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.delegates.opencl.graph import ceil_div


@dataclass(frozen=True, slots=True)
class Request:
    """Memory that must live from step `first` to step `last`, both included. Sizes in elements."""

    key: object
    elements: int
    first: int
    last: int

    def overlaps(self, other: Request) -> bool:
        """True where both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offset of each key, in elements, and the size of the arena."""

    offsets: Mapping[object, int] = field(default_factory=dict)
    elements: int = 0


def plan_memory(requests: Iterable[Request], alignment: int = 16) -> MemoryPlan:
    """Place the largest first, each at the lowest gap among those alive at the same time.

    Offsets are multiples of `alignment` elements; sizes are rounded up to it.
    """
    placed: list[tuple[int, int, Request]] = []
    offsets: dict[object, int] = {}
    total = 0
    for request in sorted(requests, key=lambda item: (-item.elements, item.first, item.last)):
        size = ceil_div(max(request.elements, 1), alignment) * alignment
        start = 0
        for other_start, other_end, other in sorted(placed, key=lambda item: item[0]):
            if not request.overlaps(other):
                continue
            if start + size <= other_start:
                break
            start = max(start, other_end)
        placed.append((start, start + size, request))
        offsets[request.key] = start
        total = max(total, start + size)
    return MemoryPlan(offsets, total)
