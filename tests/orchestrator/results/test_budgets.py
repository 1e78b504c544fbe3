"""Budgets are judged by intervals; what could not be told is an outcome of its own."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.wire.measurement import TOOK_TURNS, Energy, Quality
from agent.wire.messages import Reason, ReasonCode
from orchestrator import api
from orchestrator.cli.budgets import Undecided, conclude
from orchestrator.errors import UsageError
from orchestrator.manifest.budget import latency_budget, read_budget
from orchestrator.results.budgets import FAILED, UNDECIDED, judge_budgets, junit_xml, open_cells
from orchestrator.results.metrics import named
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
        ("p50<=2ms", "open"),
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
    assert said == ("open", "2 ms without an interval: 1 process; the interval needs 3")
    reason = Reason(code=ReasonCode.CRASH, text="signal 11")
    crashed = replace(cell(), status="failed", measurement=None, reason=reason)
    assert outcome(crashed, "p50<=5ms") == ("no_result", "failed (crash: signal 11)")
    assert outcome(cell(verdict="fail"), "p50<=5ms")[0] == "no_result", "a fast wrong answer meets no budget"


def rated(interval: tuple[float, float] = (1.9, 2.1), **quality: object) -> CellRecord:
    good = cell(ci95=interval)
    assert good.measurement is not None
    return replace(
        good, measurement=good.measurement.model_copy(update={"quality": Quality.model_validate(quality)})
    )


@pytest.mark.parametrize(
    ("one", "budget", "expected"),
    [
        (rated((0.5, 8.0), allowance=0.7), "p50<=0.1ms", "exceeded"),
        (rated((0.5, 8.0), allowance=0.7), "p50<=20ms", "met"),
        (rated(allowance=0.1), "p50<=2.2ms", "open"),
        (rated(allowance=0.1), "p50<=1.8ms", "open"),
        (rated(allowance=0.1), "p50<=2.4ms", "met"),
        (rated(allowance=0.1), "memory<=4MB", "exceeded"),
    ],
)
def test_what_others_took_widens_the_interval_and_hides_no_excess(
    one: CellRecord, budget: str, expected: str
) -> None:
    assert outcome(one, budget)[0] == expected


def test_nothing_is_judged_of_a_void_result_or_of_unjudged_outputs() -> None:
    void = rated(void=["swapped while timing"])
    for budget in ("p50<=5ms", "p50<=1ms", "init<=1ms", "memory<=4MB"):
        assert outcome(void, budget)[0] == "not_judged"
    assert outcome(void, "p50<=1ms")[1] == "2 ms, void: swapped while timing"
    imported = replace(cell(), facts={"imported_tool": "tool", "imported_sha256": "ab"})
    assert outcome(imported, "p50<=5ms")[0] == "not_judged"
    unjudged = cell(verdict=None)
    assert outcome(unjudged, "p50<=5ms")[0] == "not_judged"
    assert "its outputs were not judged" in outcome(unjudged, "p50<=5ms")[1]
    assert outcome(unjudged, "p50<=1ms")[0] == "exceeded"


def test_what_further_blocks_may_decide_is_listed_once() -> None:
    budgets = [read_budget(text) for text in ("p50<=2ms", "p50<=2.05ms", "p50<=5ms")]
    judged = judge_budgets([cell("a"), rated(void=["swap"]), cell("b", ci95=(1.0, 1.1))], budgets)
    assert [one.model for one in open_cells(judged)] == ["a"]


@pytest.mark.parametrize(
    ("outcomes", "undecided", "code"),
    [
        (["p50<=5ms"], Undecided.FAIL, 0),
        (["p50<=2ms"], Undecided.FAIL, 5),
        (["p50<=2ms"], Undecided.WARN, 0),
        (["p50<=2ms", "p50<=1ms"], Undecided.FAIL, 3),
        (["p50<=2ms", "p50<=1ms"], Undecided.WARN, 3),
    ],
)
def test_a_gate_is_open_for_what_is_met_alone(
    outcomes: list[str], undecided: Undecided, code: int, tmp_path: Path
) -> None:
    junit, budgets = tmp_path / "junit.xml", [read_budget(text) for text in outcomes]
    assert conclude("x", [cell()], budgets, junit, 0, undecided=undecided) == code
    assert ("<failure" in junit.read_text()) is (code != 0)
    assert conclude("x", [cell()], budgets, None, 1, undecided=undecided) == 1


@pytest.mark.parametrize("budget", ["p50<=5ms", "p50<=2ms", "p50<=1ms", "p99<=9s"])
@pytest.mark.parametrize("one", [cell(), cell(verdict=None), rated(void=["swap"])])
def test_the_python_interface_says_what_the_command_line_says(
    one: CellRecord, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_measured", lambda *_: one)
    asked = read_budget(budget)
    code = conclude("x", [one], [asked], None, 0)
    then = nullcontext() if code == 0 else pytest.raises(AssertionError)
    with then:
        api.assert_latency("m.tflite", "cpu", max_ms=asked.limit, figure=asked.figure)
    warned = conclude("x", [one], [asked], None, 0, undecided=Undecided.WARN)
    then = (
        pytest.raises(AssertionError)
        if warned
        else pytest.warns(UserWarning, match="p50")
        if code
        else nullcontext()
    )
    with then:
        api.assert_latency("m.tflite", "cpu", max_ms=asked.limit, figure=asked.figure, undecided="warn")


def test_energy_is_judged_where_the_machine_counts_it() -> None:
    measured = cell().measurement
    assert measured is not None
    uncounted = measured.model_copy(update={"energy": Energy(note="CPU energy: no RAPL counter")})
    assert outcome(replace(cell(), measurement=uncounted), "energy<=5mJ")[0] == "no_result"
    assert "no RAPL" in outcome(replace(cell(), measurement=uncounted), "energy<=5mJ")[1]
    turns = replace(cell(), measurement=measured.model_copy(update={"energy": Energy(note=TOOK_TURNS)}))
    assert outcome(turns, "energy<=5mJ") == ("not_judged", TOOK_TURNS)
    assert conclude("x", [turns], [read_budget("energy<=5mJ")], None, 0) == 5
    counted = measured.model_copy(update={"energy": Energy(invoke_mj=6.0)})
    assert outcome(replace(cell(), measurement=counted), "energy<=5mJ") == ("exceeded", "6 mJ")
    assert outcome(replace(cell(), measurement=counted), "energy<=0.01J") == ("met", "6 mJ")
    apart = counted.model_copy(update={"energy": Energy(invoke_mj=6.0, ci95=(4.0, 8.0))})
    assert outcome(replace(cell(), measurement=apart), "energy<=5mJ")[0] == "open", (
        "the whole interval counts"
    )
    power = named("power_w")
    assert power is not None
    assert measured.latency_ms.mean is not None
    assert power.read(replace(cell(), measurement=counted)) == 6.0 / measured.latency_ms.mean


def test_an_unsupported_cell_has_no_budget() -> None:
    assert judge_budgets([replace(cell(), status="unsupported")], [read_budget("p50<=1ms")]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p50", "expected FIGURE<=LIMIT, e.g. p50<=5ms"),
        ("p50<5ms", "expected FIGURE<=LIMIT"),
        ("p50<=-5ms", "a limit is above 0"),
        ("p50<=0ms", "a limit is above 0"),
        ("ratio>=0", "a limit is above 0"),
        ("p50>=5ms", "expected FIGURE<=LIMIT"),
        ("ratio<=1.05", "in place of this: ratio>=0.952"),
        (
            "fps<=30",
            "expected FIGURE<=LIMIT",
        ),
        ("fps>=30ms", "fps has no unit, e.g. fps>=30"),
        ("p51<=5ms", "no figure is called 'p51'; known: p50, p90"),
        ("p50<=5MB", "p50 is measured in us, ms, s, not 'MB'"),
        ("memory<=5ms", "memory is measured in B, kB"),
    ],
)
def test_a_budget_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        read_budget(text)
    assert words in str(error.value)


@pytest.mark.parametrize(("figure", "max_ms"), [("p50", 0.0), ("p50", -1.0), ("memory", 5.0), ("ratio", 1.0)])
def test_a_limit_from_python_is_refused_by_the_same_rules(figure: str, max_ms: float) -> None:
    with pytest.raises(UsageError):
        latency_budget(figure, max_ms)


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
    gate = junit_xml("gate", cells, judge_budgets(cells, budgets), failing=(*FAILED, *UNDECIDED))
    assert 'failures="6"' in gate


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("zoo:torchvision_squeezenet1_1", "torchvision_squeezenet1_1"),
        ("pypi:mediapipe==0.10.21!mediapipe/modules/face_landmark/face_landmark.tflite", "face_landmark"),
        ("https://example.org/models/net.tflite", "net"),
        ("models/net.tflite", "net"),
    ],
)
def test_every_source_is_measured_from_python_under_the_name_of_its_model(source, name):
    (model,) = api._campaign(source, "cpu", api.How(), {}).models
    assert model.id == name
