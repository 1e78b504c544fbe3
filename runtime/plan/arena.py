"""Lifetimes to offsets: tensors that never live at once share memory (greedy by size, as LiteRT's arena)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


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
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[int, int] = {}
    for index, life in sorted(lifetimes.items(), key=lambda item: (-item[1].size, item[0])):
        size = _aligned(life.size)
        busy = sorted((o, e) for o, e, other in placed if _overlap(life, other))
        offset = _first_gap(busy, size)
        offsets[index] = offset
        placed.append((offset, offset + size, life))
    return Arena(offsets, max((end for _, end, _ in placed), default=0))


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
