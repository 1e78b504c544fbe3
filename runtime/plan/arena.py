"""Lifetimes to offsets: tensors that never live at once share memory (greedy by size, as LiteRT's arena)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64
_LONG = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor of `size` bytes that lives from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """Byte offset of every tensor in one block of `size` bytes."""

    offsets: Mapping[int, int]
    size: int


def assign(lifetimes: Mapping[int, Lifetime]) -> Arena:
    """Place the largest tensor first, each at the lowest gap that its neighbours in time leave free."""
    placed = _Placed(lifetimes)
    for index, life in sorted(lifetimes.items(), key=lambda item: (-item[1].size, item[0])):
        size = _aligned(life.size)
        offset = _first_gap(sorted(placed.beside(life)), size)
        placed.add(index, (offset, offset + size))
    places = placed.places
    return Arena(
        {i: start for i, (start, _) in places.items()}, max((e for _, e in places.values()), default=0)
    )


class _Placed:
    """Places so far, found by step: most tensors live for a few steps and have few neighbours."""

    def __init__(self, lifetimes: Mapping[int, Lifetime]) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self._lifetimes = lifetimes
        self._by_step: dict[int, list[int]] = {}
        self._lasting: list[int] = []

    def beside(self, life: Lifetime) -> list[tuple[int, int]]:
        """(start, end) of every tensor that lives together with `life`."""
        if life.last - life.first >= _LONG:
            near: Iterable[int] = self.places
        else:
            steps = range(life.first, life.last + 1)
            near = {i for step in steps for i in self._by_step.get(step, ())}.union(self._lasting)
        return [self.places[i] for i in near if _overlap(life, self._lifetimes[i])]

    def add(self, index: int, place: tuple[int, int]) -> None:
        self.places[index] = place
        life = self._lifetimes[index]
        if life.last - life.first >= _LONG:
            self._lasting.append(index)
            return
        for step in range(life.first, life.last + 1):
            self._by_step.setdefault(step, []).append(index)


def _aligned(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _overlap(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


def _first_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for start, end in busy:
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset
