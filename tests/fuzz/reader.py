"""Mutated files through the metadata reader: a model or a `ModelFormatError`, in 2 s and 256 MiB.

python -m tests.fuzz.reader --cases 200000 --seed 1
"""

from __future__ import annotations

import contextlib

from runtime.errors import ModelFormatError
from runtime.model.reader import read_model
from tests.fuzz.command import fuzz
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import Seed

LIMITS = Limits(address_bytes=256 << 20, seconds=2.0)


def reads(seeds: list[Seed]) -> Case:
    """Return a case: read one mutated file."""

    def case(number: int) -> None:
        with mutated(seeds, number) as (_, view), contextlib.suppress(ModelFormatError):
            read_model(bytes(view) if len(view) < 1 << 16 else view)

    return case


if __name__ == "__main__":
    fuzz("reader", reads, LIMITS, default_cases=200_000)
