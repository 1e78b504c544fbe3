"""Writes the findings of the scenarios to `benchmarks/results/faults.md`: `FAULT_REPORT` names the file.

Nothing is written by a run that left scenarios out.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import metadata

import pytest

from tests import needs
from tests.faults import forms

VARIABLE = "FAULT_REPORT"
SCENARIOS = 41
_PAGE = """\
# Faults: what was done to the farm, and what held

`make test-faults`: **{well} of {scenarios} scenarios passed, {skipped} skipped**, in {tests} tests and
{minutes:.1f} minutes. {machine}

Every test ends with the invariants (`tests/faults/invariants.py`) held against what the runners wrote
themselves.

| # | scenario | tests | held | seconds |
|---:|---|---:|---|---:|
{rows}

{absent}

## Protections taken away

Each is removed in the processes of a test; a scenario must then fail, or it would prove nothing.

| protection removed | scenario that notices | what it noticed | caught |
|---|---|---|---|
{mutations}

## The checker

Every invariant gets a sound history that is then broken in one way: the checker must say so.

| invariant | broken by | noticed |
|---|---|---|
{checker}

## Beside the scenarios

| test | held | seconds |
|---|---|---:|
{beside}
"""
_SCENARIO = re.compile(r"test_scenario_(\d\d)([a-z]?)_(\w+)")


@dataclass(frozen=True)
class Outcome:
    """One test. `number` 0: no scenario. `properties`: what it recorded of itself."""

    number: int
    text: str
    form: str
    passed: bool
    seconds: float
    properties: dict[str, str]


@dataclass
class Record:
    """Collects the outcomes of a session."""

    outcomes: list[Outcome] = field(default_factory=list)
    skipped: int = 0
    _setup_s: dict[str, float] = field(default_factory=dict)

    def note(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        if report.skipped:
            self.skipped += 1
        if report.when == "setup" and report.passed:
            self._setup_s[report.nodeid] = report.duration
        elif report.when == "call" or report.failed:
            seconds = self._setup_s.pop(report.nodeid, 0.0) + report.duration
            self.outcomes.append(_outcome(report, seconds))

    @property
    def complete(self) -> bool:
        """Whether every scenario was run."""
        return {outcome.number for outcome in self.outcomes} >= set(range(1, SCENARIOS + 1))

    def text(self) -> str:
        """Return the report in Markdown."""
        by_number: dict[int, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            by_number[outcome.number].append(outcome)
        others = by_number.pop(0, [])
        well = [number for number, found in by_number.items() if all(o.passed for o in found)]
        minutes = sum(outcome.seconds for outcome in self.outcomes) / 60
        return _PAGE.format(
            well=len(well),
            scenarios=SCENARIOS,
            skipped=self.skipped,
            tests=len(self.outcomes),
            minutes=minutes,
            machine=machine(),
            rows="\n".join(line for number in sorted(by_number) for line in _lines(by_number[number])),
            absent=_absent(),
            mutations="\n".join(_mutation(o) for o in others if "protection" in o.properties),
            checker="\n".join(_checker(others)),
            beside="\n".join(
                f"| {o.text}{_forms([o])} | {_held(o.passed)} | {o.seconds:.0f} |"
                for o in others
                if not {"protection", "invariant"} & o.properties.keys()
            ),
        )


def _outcome(report: pytest.TestReport, seconds: float) -> Outcome:
    name, _bracket, form = report.nodeid.rpartition("::")[2].partition("[")
    found = _SCENARIO.fullmatch(name)
    number, text = (int(found[1]), found[3]) if found else (0, name.removeprefix("test_"))
    properties = {key: str(value) for key, value in report.user_properties}
    return Outcome(number, text.replace("_", " "), form.rstrip("]"), report.passed, seconds, properties)


def _lines(tests: list[Outcome]) -> list[str]:
    """One line per test function: its forms are counted together."""
    by_text: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in tests:
        by_text[outcome.text].append(outcome)
    rows = []
    for text, found in by_text.items():
        held, seconds = _held(all(o.passed for o in found)), sum(o.seconds for o in found)
        rows.append(f"| {found[0].number} | {text}{_forms(found)} | {len(found)} | {held} | {seconds:.0f} |")
    return rows


def _forms(tests: list[Outcome]) -> str:
    forms = [outcome.form for outcome in tests if outcome.form]
    return f" ({', '.join(forms)})" if forms else ""


def _mutation(outcome: Outcome) -> str:
    said = outcome.properties
    noticed = said.get("noticed", "nothing").replace("|", "\\|")
    scenario = said["scenario"].removeprefix("test_scenario_").replace("_", " ")
    return f"| {said['protection']} | {scenario} | {noticed} | {_held(outcome.passed)} |"


def _absent() -> str:
    """List the further forms that could not be run; each scenario has a form that was run."""
    found = forms.absent()
    if not found:
        return "Further forms (control groups, `netem`): all were run."
    return "Further forms that this kernel has not got (the scenario was run in its others): " + "; ".join(
        found
    )


def _checker(outcomes: list[Outcome]) -> list[str]:
    """One line per invariant."""
    by_number: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if "invariant" in outcome.properties:
            by_number[outcome.properties["invariant"]].append(outcome)
    ways = {
        number: ", ".join(
            (o.form or o.text.removeprefix("the checker notices ")).replace("_", " ") for o in found
        )
        for number, found in by_number.items()
    }
    ordered = sorted(by_number, key=lambda number: int(number[1:]))
    return [f"| {n} | {ways[n]} | {_held(all(o.passed for o in by_number[n]))} |" for n in ordered]


def _held(passed: bool) -> str:
    return "yes" if passed else "**no**"


def machine() -> str:
    """Describe the machine and the programs of this run."""
    redis = _first_line(needs.redis_server(), "--version").split("v=")[-1].split()[0]
    postgres = _first_line(str(needs.postgres_binaries() / "postgres"), "--version").split()[2]
    celery = metadata.version("celery")
    kernel = platform.release().partition("-")[0]
    return (
        f"{os.cpu_count()} cores, Linux {kernel}, Python {platform.python_version()}, "
        f"Redis {redis}, PostgreSQL {postgres}, Celery {celery}."
    )


def _first_line(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
