"""Two runs are compared: what is called a change is one, and what is lost is listed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from agent.wire.measurement import Ratio, Trust
from agent.wire.messages import Reason, ReasonCode
from orchestrator.cli.changes import summary
from orchestrator.results.records import IMPORTED_FILE, IMPORTED_SHA256, IMPORTED_TOOL, CellRecord
from orchestrator.results.regression import (
    PAIRED_THRESHOLD,
    UNPAIRED_THRESHOLD,
    by_blocks,
    compare_runs,
    verdict_over,
)
from runtime.common.statistics import estimate
from runtime.common.student import quantile
from tests.orchestrator.cli.records import cell
from tests.orchestrator.results.test_spread import VARIED

KEY = ("net", "cpu", "host-cpu", "quick")


def measured(medians: list[float], run: str = "a", **more: object) -> CellRecord:
    """A cell whose processes had these medians in ms."""
    centre = math.exp(sum(map(math.log, medians)) / len(medians))
    made = cell("net", "cpu", p50=centre, ci95=estimate([math.log(m) for m in medians]).interval, **more)
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


def test_what_equal_runs_differ_by_on_a_device_is_no_change() -> None:
    slower = [10.6, 10.62, 10.58, 10.61, 10.59]
    assert verdict(STEADY, slower) == "slower"
    noisy = replace(measured(slower, "b"), noise_floor=0.04)
    assert compare_runs({KEY: measured(STEADY)}, {KEY: noisy}).changes[0].verdict == "same"


def over_tunings(made: CellRecord, tunings: int) -> CellRecord:
    """The cell as one whose interval is over these tunings, each of four processes."""
    assert made.measurement is not None
    varied = VARIED.model_copy(update={"tunings": tunings, "processes": 4 * tunings})
    settings = {**made.measurement.settings, "processes": str(4 * tunings)}
    return replace(
        made, measurement=made.measurement.model_copy(update={"variation": varied, "settings": settings})
    )


@pytest.mark.parametrize("tuned", [False, True])
def test_the_interval_is_welchs(tuned: bool) -> None:
    """Against the formula written out, for two groups of different spread and size."""
    a, b = np.array([10.0, 10.4, 9.8]), np.array([11.0, 11.1, 10.9, 11.05, 10.95])
    first, second = measured(a.tolist()), measured(b.tolist(), "b")
    if tuned:
        first, second = over_tunings(first, 3), over_tunings(second, 5)
    report = compare_runs({KEY: first}, {KEY: second})
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


def test_imported_results_are_listed_without_a_verdict_and_are_not_in_the_mean() -> None:
    origin = {IMPORTED_TOOL: "benchmark_model", IMPORTED_FILE: "a.log", IMPORTED_SHA256: "5" * 64}
    first = {(str(i),): measured(STEADY, f"a{i}") for i in range(3)}
    second = {(str(i),): measured([10.0 * f] * 5, f"b{i}") for i, f in enumerate((2.0, 0.5, 64.0))}
    foreign = replace(second["2",], facts=origin)
    report = compare_runs(first, second | {("2",): foreign})
    assert report.mean is not None
    assert report.mean.ratio == pytest.approx(1.0, rel=1e-4)
    assert (report.mean_count, report.counts["inconclusive"]) == (2, 1)
    assert report.changes[2].why == "B imported: measured by benchmark_model, not by this farm"
    said = " ".join(summary(report, show_all=False))
    assert "geometric mean over 2 cells: +0.0%" in said
    assert "not in it: 1 imported" in said
    assert "suspect" not in said
    alone = compare_runs({KEY: foreign}, {KEY: foreign})
    assert (alone.mean, alone.mean_count) == (None, 0)
    for lost in (compare_runs({KEY: foreign}, {}), compare_runs({}, {KEY: foreign})):
        assert lost.changes[0].verdict == "missing"
        assert "not in this run" in lost.changes[0].why
        assert not lost.has_regression, "what another tool measured is no result that this farm had"


def test_one_result_in_both_runs_is_said_to_be_reused() -> None:
    first = measured(STEADY)
    again = replace(first, cell_id="b", reused_from=first.cell_id)
    (change,) = compare_runs({KEY: first}, {KEY: again}).changes
    assert change.verdict == "same"
    assert "reused" in change.why
    assert first.measurement is not None
    doubted = first.measurement.model_copy(update={"trust": Trust(verdict="invalid", reasons=("asleep",))})
    both = replace(first, measurement=doubted), replace(again, measurement=doubted)
    (change,) = compare_runs({KEY: both[0]}, {KEY: both[1]}).changes
    assert (change.verdict, change.doubtful) == ("inconclusive", True)
    assert "reused" in change.why, "to measure it again takes more than its trust"


def test_a_small_change_is_called_one_where_it_was_measured_by_blocks() -> None:
    ratio = Ratio(
        against="litert", baseline_id="litert", device_id="host-cpu", median=1 / 1.02,
        ci95=(0.975, 0.985), blocks=5, seed=1, tunings=1,
    )  # fmt: skip
    change = by_blocks(ratio)
    assert change.ratio == pytest.approx(1.02)
    assert verdict_over(change, change.p, PAIRED_THRESHOLD) == "slower"
    assert verdict_over(change, change.p, UNPAIRED_THRESHOLD) == "same"
    assert by_blocks(ratio, 1).ratio == pytest.approx(1 / 1.02)
    one_after_the_other = {KEY: measured([1.02 * value for value in STEADY], "b")}
    assert compare_runs({KEY: measured(STEADY)}, one_after_the_other).changes[0].verdict == "same"
