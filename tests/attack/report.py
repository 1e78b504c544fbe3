"""Writes the findings of a run of the attacks to `benchmarks/results/attack.md`: `ATTACK_REPORT` names the
file.

A row's attack is the name of its test, what holds is the test's docstring, the boundary is its file.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attack.elsewhere import ELSEWHERE
from tests.faults.report import machine

VARIABLE = "ATTACK_REPORT"
HOLDS = "holds"
OTHERS = "elsewhere"
"""Attacks whose tests need no lab: `tests.attack.elsewhere`."""
BOUNDARIES = {
    "test_http": "endpoint, from the network",
    "test_broker": "broker, as an enrolled agent",
    "test_messages": "messages, signed by an enrolled agent",
    "test_sources": "campaign files and sources",
    "test_models": "models",
    "test_files": "another user of the host",
    "test_runner": "a hostile runner",
    "test_alone": "a hostile runner, without a lab",
    "test_agent_side": "agent, against a hostile broker or farm",
    OTHERS: "beside the lab",
}
"""File of tests -> who attacks what. In the order of the report."""
_PAGE = """\
# Attacks: what was tried on a lab, and what held

`make test-attack`: **{held} of {attacks} attacks did no harm**, in {tests} tests and {minutes:.1f} minutes.
{machine}

One lab for all of them: Redis with access lists and TLS, PostgreSQL, `farm lab serve` with its endpoint over
TLS, and two enrolled agents; a hostile delegate is measured by three more, one of this user, one of an
ordinary user and one in a container without namespaces. Behind them stand attacks that need no lab. "Held" is
what the fourth column says; a test fails where it is not so.

| # | boundary | attack | what holds | test | result |
|---:|---|---|---|---|---|
{rows}
"""


@dataclass(frozen=True)
class Outcome:
    """One test. `place`: its file and function."""

    place: str
    holds: str
    result: str
    seconds: float

    @property
    def boundary(self) -> str:
        return OTHERS if self.place in ELSEWHERE else Path(self.place.partition("::")[0]).stem

    @property
    def attack(self) -> str:
        return self.place.rpartition("::")[2].removeprefix("test_").replace("_", " ")


@dataclass
class Record:
    """Collects the outcomes of a session."""

    outcomes: list[Outcome] = field(default_factory=list)
    _setup_s: dict[str, float] = field(default_factory=dict)

    def note(self, report: pytest.TestReport) -> None:
        """Take in one phase of one test."""
        if report.when == "setup" and report.passed:
            self._setup_s[report.nodeid] = report.duration
        elif report.when == "call" or not report.passed:
            place = report.nodeid.partition("[")[0]
            holds = str(dict(report.user_properties).get(HOLDS, ""))
            result = "skipped" if report.skipped else "held" if report.passed else "**broken**"
            seconds = self._setup_s.pop(report.nodeid, 0.0) + report.duration
            self.outcomes.append(Outcome(place, holds, result, seconds))

    def text(self) -> str:
        """Return the report in Markdown: one row per test function, whose forms are counted together."""
        by_place: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes:
            by_place[outcome.place].append(outcome)
        order = list(BOUNDARIES)
        ordered = sorted(by_place.values(), key=lambda found: order.index(found[0].boundary))
        return _PAGE.format(
            held=sum({o.result for o in found} == {"held"} for found in ordered),
            attacks=len(ordered),
            tests=len(self.outcomes),
            minutes=sum(outcome.seconds for outcome in self.outcomes) / 60,
            machine=machine(),
            rows="\n".join(_row(number, found) for number, found in enumerate(ordered, 1)),
        )

    @property
    def complete(self) -> bool:
        """Whether every boundary was attacked."""
        return {outcome.boundary for outcome in self.outcomes} >= set(BOUNDARIES)


def _row(number: int, forms: list[Outcome]) -> str:
    first = forms[0]
    count = f" ({len(forms)} forms)" if len(forms) > 1 else ""
    result = ", ".join(sorted({outcome.result for outcome in forms}))
    test = first.place.removeprefix("tests/attack/")
    cells = (str(number), BOUNDARIES[first.boundary], first.attack + count, first.holds, f"`{test}`", result)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
