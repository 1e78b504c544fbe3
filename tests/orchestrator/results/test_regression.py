"""Two runs are compared: what is called a change is one, and what is lost is listed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from agent.wire.messages import Reason, ReasonCode
from orchestrator.results.records import CellRecord
from orchestrator.results.regression import compare_runs
from orchestrator.results.student import quantile
from runtime.tools.samples import interval_of_medians
from tests.orchestrator.cli.records import cell

KEY = ("net", "cpu", "host-cpu", "quick")


def measured(medians: list[float], run: str = "a", **more: object) -> CellRecord:
    """A cell whose processes had these medians in ms."""
    centre = math.exp(sum(map(math.log, medians)) / len(medians))
    made = cell("net", "cpu", p50=centre, ci95=interval_of_medians(medians), **more)
    assert made.measurement is not None
    settings = {**made.measurement.settings, "processes": str(len(medians))}
    measurement = made.measurement.model_copy(update={"settings": settings})
    return replace(made, measurement=measurement, cell_id=f"{run}-{made.cell_id}")


STEADY = [10.0, 10.02, 9.98, 10.01, 9.99]


def verdict(first: list[float], second: list[float], threshold: float = 0.03) -> str:
    report = compare_runs({KEY: measured(first)}, {KEY: measured(second, "b")}, threshold)
    return report.changes[0].verdict


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ([11.0, 11.02, 10.98, 11.01, 10.99], "slower"),
        ([9.0, 9.02, 8.98, 9.01, 8.99], "faster"),
        ([10.01, 10.03, 9.99, 10.02, 10.0], "same"),
        ([10.2, 10.22, 10.18, 10.21, 10.19], "same"),
        ([8.0, 14.0, 10.0, 12.0, 9.0], "inconclusive"),
    ],
)
def test_verdicts_follow_the_interval_and_the_threshold(second: list[float], expected: str) -> None:
    assert verdict(STEADY, second) == expected


def test_a_certain_change_within_the_threshold_is_none() -> None:
    small = [10.2, 10.22, 10.18, 10.21, 10.19]
    assert verdict(STEADY, small) == "same"
    assert verdict(STEADY, small, threshold=0.01) == "slower"


def test_the_interval_is_welchs() -> None:
    """Against the formula written out, for two groups of different spread and size."""
    a, b = np.array([10.0, 10.4, 9.8]), np.array([11.0, 11.1, 10.9, 11.05, 10.95])
    report = compare_runs({KEY: measured(a.tolist())}, {KEY: measured(b.tolist(), "b")})
    estimate = report.changes[0].estimate
    assert estimate is not None
    assert estimate.ci95 is not None
    la, lb = np.log(a), np.log(b)
    va, vb = la.var(ddof=1) / 3, lb.var(ddof=1) / 5
    freedom = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 4)
    half = math.log(estimate.ci95[1] / estimate.ratio)
    t = half / math.sqrt(va + vb)
    assert estimate.ratio == pytest.approx(math.exp(lb.mean() - la.mean()))
    assert t == pytest.approx(quantile(freedom), rel=1e-4)
    assert 2.1 < freedom < 2.2, "the noisier and smaller group decides"


def test_equal_runs_are_rarely_called_different() -> None:
    """Processes differ by 1 %; even at threshold 0 at most a few of 400 cells are called a change."""
    rng = np.random.default_rng(2)

    def run(name: str) -> dict[tuple[str, ...], CellRecord]:
        logs = rng.normal(0, 0.01, (400, 5))
        return {(str(i),): measured((10 * np.exp(row)).tolist(), f"{name}{i}") for i, row in enumerate(logs)}

    counts = compare_runs(run("a"), run("b"), 0.0).counts
    assert counts.get("slower", 0) + counts.get("faster", 0) <= 4


def test_a_lost_result_is_a_regression_and_says_why() -> None:
    good = measured(STEADY)
    reason = Reason(code=ReasonCode.CRASH, text="signal 11")
    lost = replace(good, status="failed", measurement=None, reason=reason, cell_id="b")
    report = compare_runs({KEY: good}, {KEY: lost})
    assert report.changes[0].verdict == "broken"
    assert report.changes[0].why == "B: crash: signal 11"
    assert report.has_regression
    assert compare_runs({KEY: lost}, {KEY: good}).changes[0].verdict == "mended"
    assert compare_runs({KEY: good}, {}).changes[0].why == "B: not in this run"
    wrong = measured(STEADY, "b", verdict="fail")
    assert compare_runs({KEY: good}, {KEY: wrong}).changes[0].verdict == "broken"


def test_what_else_differs_is_named_once_with_its_count() -> None:
    old = {"litert": "2.3.0", "kernel": "6.1"}
    first = {(str(i),): replace(measured(STEADY, f"a{i}"), environment=old) for i in range(3)}
    new = {**old, "litert": "2.4.0"}
    second = {(str(i),): replace(measured(STEADY, f"b{i}"), environment=new) for i in range(3)}
    (found,) = compare_runs(first, second).differences
    assert (found.name, found.before, found.after, found.cells) == ("litert", "2.3.0", "2.4.0", 3)


def test_the_mean_is_geometric_with_an_interval_over_cells() -> None:
    first = {(str(i),): measured([10.0] * 5, f"a{i}") for i in range(4)}
    second = {(str(i),): measured([10.0 * f] * 5, f"b{i}") for i, f in enumerate((0.5, 2.0, 1.0, 1.0))}
    mean = compare_runs(first, second).mean
    assert mean is not None
    assert mean.ratio == pytest.approx(1.0)
    assert mean.ci95 is not None
    assert mean.ci95[0] < 0.6
    assert mean.ci95[1] > 1.7


def test_one_result_in_both_runs_is_said_to_be_reused() -> None:
    first = measured(STEADY)
    again = replace(first, cell_id="b", reused_from=first.cell_id)
    (change,) = compare_runs({KEY: first}, {KEY: again}).changes
    assert change.verdict == "same"
    assert "reused" in change.why
