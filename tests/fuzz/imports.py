"""Mutated result files of other tools through `farm import`: results, or `NotReadableError`.

python -m tests.fuzz.imports --cases 100000 --seed 1
"""

from __future__ import annotations

import contextlib
import json
import re

from orchestrator.results.imports.reading import read_results
from orchestrator.results.imports.reports import NotReadableError
from tests.fuzz.command import fuzz
from tests.fuzz.limited import Case, Limits
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import Seed
from tests.orchestrator.results import test_imports as files

LIMITS = Limits(address_bytes=512 << 20, seconds=10.0)


def result_files() -> list[Seed]:
    """Return a file of each form; every byte, and every number as a whole, is a place to change."""
    texts = {
        "log": files.LOG, "old-log": files.OLD, "message": files.MESSAGE, "block": files.BLOCK,
        "litert": json.dumps(files.LITERT), "ai-hub": json.dumps(files.AI_HUB),
    }  # fmt: skip
    contents = {name: text.encode() for name, text in texts.items()} | {"binary": files.BINARY}
    return [Seed(name, bytearray(content), _places(content), False) for name, content in contents.items()]


def _places(content: bytes) -> tuple[tuple[int, int], ...]:
    numbers = [(found.start(), len(found[0])) for found in re.finditer(rb"[0-9.]+", content)]
    return (*numbers, *((at, 1) for at in range(len(content))))


def reads_results(seeds: list[Seed]) -> Case:
    """Return a case: read one mutated file."""

    def case(number: int) -> None:
        with mutated(seeds, number) as (_, view), contextlib.suppress(NotReadableError):
            read_results(bytes(view))

    return case


if __name__ == "__main__":
    fuzz("imports", reads_results, LIMITS, default_cases=100_000, start=result_files)
