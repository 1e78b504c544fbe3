"""The first seeded files of each fuzzer, some seconds of each; `make fuzz` runs fifty times as many."""

from __future__ import annotations

import pytest

from runtime.ops.support.registry import CUSTOM_SPECS, SPECS
from tests.fuzz import imports, interpreter, plan, reader
from tests.fuzz.command import CORPUS
from tests.fuzz.limited import run_cases
from tests.fuzz.seeds import Seed, operator_seeds, seeds, shared_files, zoo_files
from tests.needs import shared_models

FOR_THE_READER = 4_000
FOR_THE_INTERPRETER = 400
FOR_PLANS = 400
FOR_IMPORTS = 2_000
"""Files: a fiftieth of those of `make fuzz`, or fewer. More take longer; every run makes the same ones."""
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


@pytest.mark.slow
def test_mutated_files_never_harm_the_reader(start: list[Seed]):
    files = range(1, 1 + FOR_THE_READER)
    ran, findings = run_cases(lambda: reader.reads(start), files, reader.LIMITS, float("inf"))
    assert (ran, findings) == (FOR_THE_READER, [])


def test_mutated_files_never_harm_the_interpreter(start: list[Seed]):
    files = range(1, 1 + FOR_THE_INTERPRETER)
    ran, findings = run_cases(lambda: interpreter.runs(start), files, interpreter.LIMITS, float("inf"))
    assert (ran, findings) == (FOR_THE_INTERPRETER, [])


def test_mutated_files_never_harm_a_plan(start: list[Seed]):
    files = range(1, 1 + FOR_PLANS)
    ran, findings = run_cases(lambda: plan.plans(start), files, plan.LIMITS, float("inf"))
    assert (ran, findings) == (FOR_PLANS, [])


def test_mutated_results_of_other_tools_never_harm_an_import():
    files = range(1, 1 + FOR_IMPORTS)
    found = imports.result_files()
    ran, findings = run_cases(lambda: imports.reads_results(found), files, imports.LIMITS, float("inf"))
    assert (ran, findings) == (FOR_IMPORTS, [])
