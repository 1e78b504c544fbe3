"""Budgets are judged by intervals; what could not be told is an outcome of its own."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from agent.wire.measurement import Trust
from agent.wire.messages import Reason, ReasonCode
from orchestrator.errors import UsageError
from orchestrator.manifest.budget import read_budget
from orchestrator.results.budgets import judge_budgets
from orchestrator.results.junit import junit_xml
from orchestrator.results.records import CellRecord
from tests.orchestrator.cli.records import cell


def outcome(one: CellRecord, budget: str) -> tuple[str, str]:
    (judged,) = judge_budgets([one], [read_budget(budget)])
    return judged.outcome, judged.said


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ("p50<=2.1ms", "met"),
        ("p50<=5ms", "met"),
        ("p50 <= 0.005s", "met"),
        ("p50<=1.8ms", "exceeded"),
        ("p50<=1899us", "exceeded"),
        ("p50<=2ms", "inconclusive"),
        ("init<=10ms", "met"),
        ("init<=9.9ms", "exceeded"),
        ("memory<=5MB", "met"),
        ("memory<=4MiB", "exceeded"),
        ("p99<=9s", "no_result"),
        ("memory_cold<=1GB", "no_result"),
    ],
)
def test_the_interval_decides_and_where_there_is_none_the_figure(budget: str, expected: str) -> None:
    """p50 of the cell is 2.0 ms, its interval 1.9 to 2.1."""
    assert outcome(cell(), budget)[0] == expected


def test_the_outcome_is_explained() -> None:
    assert outcome(cell(), "p50<=1.8ms") == ("exceeded", "2 ms [1.9 ms to 2.1 ms]")
    said = outcome(cell(ci95=None), "p50<=5ms")
    assert said == ("inconclusive", "2 ms without an interval: 1 process; the interval needs 3")
    reason = Reason(code=ReasonCode.CRASH, text="signal 11")
    crashed = replace(cell(), status="failed", measurement=None, reason=reason)
    assert outcome(crashed, "p50<=5ms") == ("no_result", "failed (crash: signal 11)")
    assert outcome(cell(verdict="fail"), "p50<=5ms")[0] == "no_result", "a fast wrong answer meets no budget"


def test_a_doubtful_time_neither_meets_nor_exceeds_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FARM_JUDGE_SUSPECT", raising=False)

    def of(verdict: str, budget: str) -> tuple[str, str]:
        good = cell()
        assert good.measurement is not None
        trust = Trust.model_validate({"verdict": verdict, "reasons": ["drift: +3%"]})
        return outcome(
            replace(good, measurement=good.measurement.model_copy(update={"trust": trust})), budget
        )

    assert of("suspect", "p50<=5ms") == ("inconclusive", "2 ms, suspect: drift: +3%")
    assert of("invalid", "init<=1ms") == ("inconclusive", "10 ms, invalid: drift: +3%")
    assert of("suspect", "memory<=4MB")[0] == "exceeded", "a neighbour makes nothing larger"
    assert of("invalid", "memory<=4MB")[0] == "inconclusive"
    assert of("trusted", "p50<=5ms")[0] == "met"
    monkeypatch.setenv("FARM_JUDGE_SUSPECT", "1")
    assert of("suspect", "p50<=1.8ms")[0] == "exceeded"
    assert of("invalid", "p50<=1.8ms")[0] == "inconclusive"


def test_an_unsupported_cell_has_no_budget() -> None:
    assert judge_budgets([replace(cell(), status="unsupported")], [read_budget("p50<=1ms")]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p50", "expected FIGURE<=LIMIT, e.g. p50<=5ms"),
        ("p50<5ms", "expected FIGURE<=LIMIT"),
        ("p50<=-5ms", "expected FIGURE<=LIMIT"),
        ("p51<=5ms", "no figure is called 'p51'; known: p50, p90"),
        ("p50<=5MB", "p50 is measured in us, ms, s, not 'MB'"),
        ("memory<=5ms", "memory is measured in B, kB"),
    ],
)
def test_a_budget_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_budget(text)
    assert words in str(error.value)


def test_junit_has_a_case_for_each_cell_and_each_budget() -> None:
    reason = Reason(code=ReasonCode.CRASH, text="signal 11 \x1b[2J <&>")
    crashed = replace(cell("bad"), status="failed", measurement=None, reason=reason)
    without = replace(cell("none"), status="unsupported", reason=reason)
    cells = [cell("good"), crashed, without]
    budgets = [read_budget("p50<=5ms"), read_budget("p50<=2ms"), read_budget("p50<=1ms")]
    suite = ElementTree.fromstring(junit_xml("nightly\0", cells, judge_budgets(cells, budgets)))
    assert suite.tag == "testsuite"
    cases = {(c.get("classname"), c.get("name")): [e.tag for e in c] for c in suite}
    assert cases["good.cpu@host-cpu", "measured"] == []
    assert cases["bad.cpu@host-cpu", "measured"] == ["failure"]
    assert cases["none.cpu@host-cpu", "measured"] == ["skipped"]
    assert cases["good.cpu@host-cpu", "p50<=5ms"] == []
    assert cases["good.cpu@host-cpu", "p50<=2ms"] == ["skipped"]
    assert cases["good.cpu@host-cpu", "p50<=1ms"] == ["failure"]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("9", "5", "2")
