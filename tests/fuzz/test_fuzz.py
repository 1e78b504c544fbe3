"""Ten seeded seconds of each fuzzer; `make fuzz` runs the long ones."""

from __future__ import annotations

import time

import pytest

from runtime.ops.support.registry import CUSTOM_SPECS, SPECS
from tests.fuzz import interpreter, reader
from tests.fuzz.command import CORPUS
from tests.fuzz.limited import run_cases
from tests.fuzz.seeds import Seed, operator_seeds, seeds, shared_files, zoo_files
from tests.needs import shared_models

SECONDS = 10.0
SMALL_ZOO = 6
MISSING = 8
"""So many operators may be younger than `operators.zip`; `collect.py` gathers them anew."""


@pytest.fixture(scope="module")
def start() -> list[Seed]:
    shared_models()
    small = [path for path in zoo_files() if path.stat().st_size < 40_000][:SMALL_ZOO]
    return [*seeds(shared_files() + small, CORPUS), *operator_seeds()]


def test_every_file_of_the_corpus_is_read_or_refused():
    found = list(seeds([], CORPUS))
    assert found
    ran, findings = run_cases(lambda: reader.reads(found), range(200), reader.LIMITS, float("inf"))
    assert (ran, findings) == (200, [])


def test_the_fuzzers_start_from_every_operator():
    names = {o.name.lower() for o in SPECS} | {name.lower() for name in CUSTOM_SPECS}
    started = {seed.name.rpartition("_")[0] for seed in operator_seeds()}
    missing = {name for name in names - started if not name.startswith("test")}
    assert len(missing) < MISSING, missing


def test_mutated_files_never_harm_the_reader(start: list[Seed]):
    until = time.monotonic() + SECONDS
    ran, findings = run_cases(lambda: reader.reads(start), range(1, 1_000_000), reader.LIMITS, until)
    assert ran > 500
    assert findings == []


def test_mutated_files_never_harm_the_interpreter(start: list[Seed]):
    until = time.monotonic() + SECONDS
    ran, findings = run_cases(lambda: interpreter.runs(start), range(1, 1_000_000), interpreter.LIMITS, until)
    assert ran > 50
    assert findings == []
