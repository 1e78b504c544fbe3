"""Lifetimes to offsets: buffers that never live at once share memory (greedy by size, as LiteRT's arena).

The CPU plan and the OpenCL delegate count in bytes; the planner needs sizes and alignment in one unit.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_LONG = 64
"""Steps from which on a buffer counts as lasting: every placement compares itself with it. A shorter one is
listed under each step of its life, so a larger number makes those lists longer; a smaller one makes long
graphs with many skip connections compare nearly every pair. Chosen: few tensors of a network live so long."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `size` units that lives from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena(Generic[Key]):
    """The offset of every buffer in one block of `size` units."""

    offsets: Mapping[Key, int]
    size: int


def assign(lifetimes: Mapping[Key, Lifetime], alignment: int) -> Arena[Key]:
    """Place the largest buffer first, each at the lowest gap that its neighbours in time leave free.

    Offsets are multiples of `alignment`, and sizes are rounded up to it; an empty buffer takes one such
    piece, so that no two live buffers share an offset. Buffers of one size are placed in the order given.
    """
    placed = _Placed(lifetimes)
    for key, life in sorted(lifetimes.items(), key=lambda item: -item[1].size):
        size = aligned(life.size, alignment)
        offset = _first_gap(sorted(placed.beside(life)), size)
        placed.add(key, (offset, offset + size))
    places = placed.places
    return Arena(
        {key: start for key, (start, _) in places.items()},
        max((end for _, end in places.values()), default=0),
    )


def aligned(size: int, alignment: int) -> int:
    """Return the space of a buffer of `size` units in an arena: at least one piece of `alignment` units."""
    return -(-max(size, 1) // alignment) * alignment


class _Placed(Generic[Key]):
    """Places so far, found by step: most buffers live for a few steps and have few neighbours."""

    def __init__(self, lifetimes: Mapping[Key, Lifetime]) -> None:
        self.places: dict[Key, tuple[int, int]] = {}
        self._lifetimes = lifetimes
        self._by_step: dict[int, list[Key]] = {}
        self._lasting: list[Key] = []

    def beside(self, life: Lifetime) -> list[tuple[int, int]]:
        """(start, end) of every buffer that lives together with `life`."""
        if life.last - life.first >= _LONG:
            near: Iterable[Key] = self.places
        else:
            steps = range(life.first, life.last + 1)
            near = {key for step in steps for key in self._by_step.get(step, ())}.union(self._lasting)
        others = ((key, self._lifetimes[key]) for key in near)
        return [
            self.places[k] for k, other in others if life.first <= other.last and other.first <= life.last
        ]

    def add(self, key: Key, place: tuple[int, int]) -> None:
        self.places[key] = place
        life = self._lifetimes[key]
        if life.last - life.first >= _LONG:
            self._lasting.append(key)
            return
        for step in range(life.first, life.last + 1):
            self._by_step.setdefault(step, []).append(key)


def _first_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for start, end in busy:
        if start - offset >= size:
            break
        # The neighbours need not live together: one may lie within another.
        offset = max(offset, end)
    return offset
