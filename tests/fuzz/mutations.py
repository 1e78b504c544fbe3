"""One mutation of a seed, given by a number: the same number always makes the same file."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.fuzz.seeds import Seed

_EDGES = (0, 1, 2, 3, 4, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
          0xFFFFFFFE, 0xFFFFFFFC, 0x3FFFFFFF, 0x40000000, 0x10000)  # fmt: skip
_DENSE_BYTES = 4096
"""Blind mutations fall into the first and last so many bytes, or anywhere."""


@contextmanager
def mutated(seeds: Sequence[Seed], number: int) -> Iterator[tuple[str, memoryview]]:
    """Yield a mutated file, valid within the block: (what it was made of, its bytes)."""
    rng = random.Random(number)
    seed = seeds[rng.randrange(len(seeds))]
    undo: list[tuple[int, bytes]] = []
    try:
        for _ in range(1 + min(int(rng.expovariate(0.7)), 12)):
            _change(seed, rng, undo)
        length = len(seed.data)
        if rng.random() < 0.04:
            length = rng.randrange(1, length) if length > 1 else length
        with memoryview(seed.data) as whole, whole[:length] as view:
            yield f"mutation {number} of {seed.name}", view
    finally:
        for position, before in reversed(undo):
            seed.data[position : position + len(before)] = before


def _change(seed: Seed, rng: random.Random, undo: list[tuple[int, bytes]]) -> None:
    position, width = rng.choice(seed.places) if rng.random() < 0.85 else _blind(seed, rng)
    before = bytes(seed.data[position : position + width])
    undo.append((position, before))
    seed.data[position : position + width] = _value(seed, rng, before, position)


def _blind(seed: Seed, rng: random.Random) -> tuple[int, int]:
    size = len(seed.data)
    near = min(size, _DENSE_BYTES)
    start = rng.choice((rng.randrange(near), size - 1 - rng.randrange(near), rng.randrange(size)))
    return start, min(rng.choice((1, 1, 2, 4, 8)), size - start)


def _value(seed: Seed, rng: random.Random, before: bytes, position: int) -> bytes:
    width = len(before)
    number = int.from_bytes(before, "little")
    kind = rng.randrange(6)
    if kind == 0:
        number = rng.choice(_EDGES)
    elif kind == 1:
        number += rng.randint(-4, 4)
    elif kind == 2:
        number ^= 1 << rng.randrange(8 * width)
    elif kind == 3:
        number = rng.getrandbits(8 * width)
    elif kind == 4:
        number = len(seed.data) - position + rng.randint(-8, 8)
    else:
        other, size = rng.choice(seed.places)
        number = int.from_bytes(seed.data[other : other + size], "little")
    return (number % (1 << (8 * width))).to_bytes(width, "little")
