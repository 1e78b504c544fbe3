"""Two runs are compared: what is called a change is one, and what is lost is listed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from agent.wire.measurement import BlockFigure, Quality, Ratio, baseline_id
from agent.wire.messages import Reason, ReasonCode
from orchestrator.cli.changes import summary
from orchestrator.results.change_estimates import NO_INTERVAL, NO_SESSIONS, by_blocks, unpaired
from orchestrator.results.device_noise import Controls, DeviceNoise, spread_of
from orchestrator.results.records import IMPORTED_FILE, IMPORTED_SHA256, IMPORTED_TOOL, CellRecord
from orchestrator.results.regression import by_names, compare_runs, verdict_over
from runtime.common.statistics import estimate
from runtime.common.student import quantile
from tests.orchestrator.cli.records import cell
from tests.orchestrator.results.test_spread import VARIED


def noise(session_sd: float, floor: float = 0.0, sessions: int = 5) -> DeviceNoise:
    return DeviceNoise(floor, session_sd, sessions, "cpu", "2026-03-01T12:00:00+00:00")


QUIET = noise(0.0)
"""Of a device whose sessions do not differ."""

KEY = ("net", "cpu", "host-cpu", "quick")


def measured(medians: list[float], run: str = "a", **more: object) -> CellRecord:
    """Build a cell whose processes had these medians in ms."""
    centre = math.exp(sum(map(math.log, medians)) / len(medians))
    made = cell("net", "cpu", p50=centre, ci95=estimate([math.log(m) for m in medians]).interval, **more)
    assert made.measurement is not None
    settings = {**made.measurement.settings, "processes": str(len(medians))}
    measurement = made.measurement.model_copy(update={"settings": settings})
    return replace(made, measurement=measurement, cell_id=f"{run}-{made.cell_id}", noise=QUIET)


STEADY = [10.0, 10.02, 9.98, 10.01, 9.99]


def verdict(first: list[float], second: list[float], threshold: float | None = None) -> str:
    report = compare_runs({KEY: measured(first)}, {KEY: measured(second, "b")}, threshold)
    return report.changes[0].verdict


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ([11.0, 11.02, 10.98, 11.01, 10.99], "slower"),
        ([9.0, 9.02, 8.98, 9.01, 8.99], "faster"),
        ([10.01, 10.03, 9.99, 10.02, 10.0], "same"),
        ([10.2, 10.22, 10.18, 10.21, 10.19], "slower"),
        ([8.0, 14.0, 10.0, 12.0, 9.0], "open"),
    ],
)
def test_verdicts_follow_the_interval_and_the_threshold(second: list[float], expected: str) -> None:
    assert verdict(STEADY, second) == expected


def test_a_certain_change_within_the_threshold_is_none() -> None:
    small = [10.2, 10.22, 10.18, 10.21, 10.19]
    assert verdict(STEADY, small) == "slower"
    assert verdict(STEADY, small, threshold=0.03) == "same"


def test_what_equal_runs_differ_by_on_a_device_is_no_change() -> None:
    slower = [10.6, 10.62, 10.58, 10.61, 10.59]
    assert verdict(STEADY, slower) == "slower"
    noisy = replace(measured(slower, "b"), noise=noise(0.0, floor=0.04))
    assert compare_runs({KEY: measured(STEADY)}, {KEY: noisy}).changes[0].verdict == "same"


def over_tunings(made: CellRecord, tunings: int, last: int | None = None) -> CellRecord:
    """Change the cell to one whose interval is over these tunings, each of four processes. `last`: how many
    of them are of the last attempt, where it added blocks to earlier ones.
    """
    assert made.measurement is not None
    varied = VARIED.model_copy(update={"tunings": last or tunings, "processes": 4 * tunings})
    blocks = [BlockFigure(p50_ns=1e7, rounds=7, tuning=k) for k in range(tunings) for _ in range(4)]
    update = {
        "variation": varied,
        "settings": {**made.measurement.settings, "processes": str(4 * tunings)},
        "blocks": tuple(blocks if last else ()),
    }
    return replace(made, measurement=made.measurement.model_copy(update=update))


@pytest.mark.parametrize("tuned", ["not tuned", "tuned", "blocks added"])
def test_the_interval_is_welchs(tuned: str) -> None:
    """Against the formula written out, for two groups of different spread and size."""
    a, b = np.array([10.0, 10.4, 9.8]), np.array([11.0, 11.1, 10.9, 11.05, 10.95])
    first, second = measured(a.tolist()), measured(b.tolist(), "b")
    if tuned != "not tuned":
        last = 2 if tuned == "blocks added" else None
        first, second = over_tunings(first, 3, last), over_tunings(second, 5, last)
    report = compare_runs({KEY: first}, {KEY: second})
    estimate = report.changes[0].estimate
    assert estimate is not None
    assert estimate.ci95 is not None
    la, lb = np.log(a), np.log(b)
    va, vb = la.var(ddof=1) / 3, lb.var(ddof=1) / 5
    freedom = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 4)
    half = math.log(estimate.ci95[1] / estimate.ratio)
    t = half / math.sqrt(va + vb)
    assert estimate.ratio == pytest.approx(math.exp(la.mean() - lb.mean()))
    assert t == pytest.approx(quantile(freedom), rel=1e-4)
    assert 2.1 < freedom < 2.2, "the noisier and smaller group decides"


def test_equal_runs_are_rarely_called_different() -> None:
    """Processes differ by 1 %; even at threshold 0 at most a few of 400 cells are called different."""
    rng = np.random.default_rng(2)

    def run(name: str) -> dict[tuple[str, ...], CellRecord]:
        logs = rng.normal(0, 0.01, (400, 5))
        return {(str(i),): measured((10 * np.exp(row)).tolist(), f"{name}{i}") for i, row in enumerate(logs)}

    counts = compare_runs(run("a"), run("b"), 0.0).counts
    assert counts.get("slower", 0) + counts.get("faster", 0) <= 4


@pytest.mark.parametrize(("sessions_known", "least", "most"), [(True, 0.0, 0.05), (False, 0.2, 0.9)])
def test_equal_sessions_whose_speed_differs_are_rarely_called_different(
    sessions_known: bool, least: float, most: float
) -> None:
    """A session's speed differs by 2 % (sd), which a series of five has found out as well as five can."""
    rng, called, count = np.random.default_rng(23), 0, 4000
    for _ in range(count):
        session_sd = float(np.std(rng.normal(0, 0.02, 5), ddof=1))
        known = noise(math.expm1(session_sd) if sessions_known else 0.0)
        runs = [rng.normal(rng.normal(0, 0.02), 0.01, 5) for _ in range(2)]
        variances = [(float(np.var(run, ddof=1)) / 5, 4.0) for run in runs]
        spread = spread_of(Controls(), known, known)
        found = unpaired(float(runs[0].mean() - runs[1].mean()), variances, spread)
        called += verdict_over(found, found.p, 0.01)[0] in ("faster", "slower")
    assert least <= called / count <= most


def session(
    rng: np.random.Generator, run: str, changed: dict[str, float], runtime: str = "1"
) -> dict[tuple[str, ...], CellRecord]:
    """Nine models on three delegates, in a session that is slower or faster by 10 % (sd), each model, too.

    `changed`: by how many times longer a delegate takes, which has another version then.
    """
    found = {}
    shift = rng.normal(0, 0.1)
    for model in range(9):
        own = shift + rng.normal(0, 0.1)
        logs = {name: own + rng.normal(0, 0.01) for name in ("litert", "cpu", "gpu")}
        for name, log in logs.items():
            medians = 10 * np.exp(log + rng.normal(0, 0.005, 5)) * changed.get(name, 1.0)
            made = measured(medians.tolist(), f"{run}{model}{name}")
            version = runtime if name in changed else "0"
            assert made.measurement is not None
            if name != "litert":
                base = 10 * math.exp(logs["litert"])
                ratio = blocks(base / made.measurement.latency_ms.p50, (0.99, 1.01), spread=0.01,
                               baseline_id=baseline_id("litert", {}))  # fmt: skip
                made = replace(made, measurement=made.measurement.model_copy(update={"ratio": ratio}))
            made = replace(made, model=f"net{model}", delegate=name, delegate_kind=name, noise=None,
                           delegate_options={}, environment={"runtime": version})  # fmt: skip
            found[f"net{model}", name] = made
    return found


@pytest.mark.parametrize(("change", "least", "most"), [(1.0, 0.0, 0.02), (1.1, 0.8, 1.0)])
def test_unchanged_cells_tell_how_much_two_sessions_differ(change: float, least: float, most: float) -> None:
    """Medians drift by 14 % from run to run, ratios to an unchanged baseline by 1.4 %; no noise series."""
    rng = np.random.default_rng(5)
    called, unchanged = [], []
    for _ in range(40):
        report = compare_runs(session(rng, "a", {"gpu": 1.0}, "1"), session(rng, "b", {"gpu": change}, "2"))
        for found in report.changes:
            (called if found.key[1] == "gpu" else unchanged).append(found.verdict)
    assert unchanged.count("slower") + unchanged.count("faster") <= 0.05 * len(unchanged)
    assert least <= called.count("slower") / len(called) <= most
    assert called.count("faster") <= 0.02 * len(called)


def test_what_is_open_says_by_how_much_unchanged_cells_differ() -> None:
    first = {(str(i),): replace(measured(STEADY, f"a{i}"), noise=None) for i in range(6)}
    second = {
        (str(i),): replace(measured([factor * v for v in STEADY], f"b{i}"), noise=None)
        for i, factor in enumerate((1.1, 0.9, 1.1, 0.9, 1.1, 1.1))
    }
    report = compare_runs(first, second)
    assert {found.verdict for found in report.changes} == {"open"}
    assert "unchanged cells of the two runs differ by 1" in report.changes[0].why
    assert any(
        "open: 6 unpaired" in line and "--rerun decides" in line for line in summary(report, show_all=False)
    )
    kept = {
        key: replace(cell, reused_from=first[key].cell_id) for key, cell in second.items() if key != ("0",)
    }
    alone = compare_runs(first, {**second, **kept}).changes[0]
    assert alone.why == NO_SESSIONS, "reused results are no witnesses"


def test_where_it_is_not_known_how_sessions_differ_nothing_is_decided() -> None:
    first, second = measured(STEADY), measured([1.5 * value for value in STEADY], "b")
    for pair in ((replace(first, noise=None), second), (first, replace(second, noise=None))):
        report = compare_runs({KEY: pair[0]}, {KEY: pair[1]})
        (change,) = report.changes
        assert (change.verdict, change.why) == ("open", NO_SESSIONS)
        assert change.estimate is not None
        assert change.estimate.ratio == pytest.approx(1 / 1.5)
        assert report.undecided == (change,)
        assert "farm compare … --rerun decides" in " ".join(summary(report, show_all=False))
    few = replace(second, measurement=cell(p50=3.0, ci95=None).measurement)
    assert compare_runs({KEY: first}, {KEY: few}).changes[0].why == NO_INTERVAL


def test_what_others_took_of_either_side_widens_the_interval() -> None:
    second = measured([1.03 * value for value in STEADY], "b")
    assert compare_runs({KEY: measured(STEADY)}, {KEY: second}).changes[0].verdict == "slower"
    assert second.measurement is not None
    taken = second.measurement.model_copy(update={"quality": Quality(allowance=0.04)})
    report = compare_runs({KEY: measured(STEADY)}, {KEY: replace(second, measurement=taken)})
    assert report.changes[0].verdict == "open"


def test_a_difference_that_so_many_cells_explain_is_not_called() -> None:
    lone = by_blocks(blocks(1 / 1.1, (0.85, 0.975), spread=0.1))
    assert verdict_over(lone, 0.02, 0.01)[0] == "slower"
    assert verdict_over(lone, 0.2, 0.01) == ("open", "among so many cells one differs by chance as much")


@pytest.mark.parametrize(
    ("interval", "undecided"),
    [((0.9, 1.05), True), ((0.98, 1.2), False), ((0.97, 0.985), False)],
    ids=["may be slower", "not slower", "slower"],
)
def test_undecided_is_what_may_be_slower(interval: tuple[float, float], undecided: bool) -> None:
    base = measured(STEADY)
    second = measured(STEADY, "b")
    assert second.measurement is not None
    stored = blocks(math.sqrt(interval[0] * interval[1]), interval)
    second = replace(second, measurement=second.measurement.model_copy(update={"ratio": stored}))
    report = compare_runs({KEY: base}, {KEY: second})
    assert bool(report.undecided) is undecided
    assert report.has_regression is (interval[1] < 0.99)


def test_a_lost_result_is_a_regression_and_says_why() -> None:
    good = measured(STEADY)
    reason = Reason(code=ReasonCode.CRASH, text="signal 11")
    lost = replace(good, status="failed", measurement=None, reason=reason, cell_id="b")
    report = compare_runs({KEY: good}, {KEY: lost})
    assert report.changes[0].verdict == "broken"
    assert report.changes[0].why == "after: crash: signal 11"
    assert report.has_regression
    assert compare_runs({KEY: lost}, {KEY: good}).changes[0].verdict == "repaired"
    alone = (compare_runs({KEY: good}, {}), compare_runs({}, {KEY: good}))
    assert [report.changes[0].verdict for report in alone] == ["removed", "added"]
    assert not any(report.has_regression for report in alone), "the request has changed, not the result"
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
    assert (report.mean_count, report.counts["void"]) == (2, 1)
    assert report.changes[2].why == "after: imported: measured by benchmark_model, not by this farm"
    said = " ".join(summary(report, show_all=False))
    assert "geometric mean over 2 cells: speed " in said
    assert "not in it: 1 imported" in said
    assert "farm retry" not in said
    alone = compare_runs({KEY: foreign}, {KEY: foreign})
    assert (alone.mean, alone.mean_count) == (None, 0)
    for lost in (compare_runs({KEY: foreign}, {}), compare_runs({}, {KEY: foreign})):
        assert lost.changes[0].verdict == "missing"
        assert not lost.has_regression, "what another tool measured is no result that this farm had"


def test_one_result_in_both_runs_is_said_to_be_reused() -> None:
    first = measured(STEADY)
    again = replace(first, cell_id="b", reused_from=first.cell_id)
    (change,) = compare_runs({KEY: first}, {KEY: again}).changes
    assert change.verdict == "same"
    assert "reused" in change.why
    assert first.measurement is not None
    void = first.measurement.model_copy(update={"quality": Quality(void=("asleep",))})
    both = replace(first, measurement=void), replace(again, measurement=void)
    (change,) = compare_runs({KEY: both[0]}, {KEY: both[1]}).changes
    assert change.verdict == "void"
    assert "reused" in change.why, "to measure it again takes more than its grade"


def test_reused_results_hide_no_difference_of_those_that_were_measured() -> None:
    before, after = ([factor * ms for ms in (9.7, 10.3, 10.0, 9.8, 10.2)] for factor in (1.0, 1.05))
    kept = {(str(i),): measured(STEADY, f"a{i}") for i in range(20)}
    again = {key: replace(one, cell_id=f"b{key[0]}", reused_from=one.cell_id) for key, one in kept.items()}
    report = compare_runs({KEY: measured(before), **kept}, {KEY: measured(after, "b"), **again})
    assert [change.verdict for change in report.changes] == ["slower", *["same"] * len(kept)]


def blocks(median: float, ci95: tuple[float, float], **more: object) -> Ratio:
    values = {"baseline_id": baseline_id("cpu", {}), "device_id": "host-cpu", "blocks": 5, "seed": 1}
    return Ratio.model_validate({"against": "x", "median": median, "ci95": ci95, **values, **more})


def test_a_ratio_by_blocks_is_read_in_one_direction() -> None:
    ratio = blocks(1 / 1.02, (0.975, 0.985))
    found = by_blocks(ratio)
    assert found.ratio == pytest.approx(1 / 1.02)
    assert verdict_over(found, found.p, 0.01)[0] == "slower"
    assert verdict_over(found, found.p, 0.03)[0] == "same"
    other = by_blocks(ratio, -1)
    assert other.ratio == pytest.approx(1.02)
    assert other.ci95 == pytest.approx((1 / 0.985, 1 / 0.975))
    assert verdict_over(other, other.p, 0.01)[0] == "faster"


@pytest.mark.parametrize(("count", "spread", "t"), [(5, 0.01, 2.776), (10, 0.01, 3.0), (10, None, 2.262)])
def test_the_probability_of_a_paired_ratio_is_of_the_interval_that_was_stored(
    count: int, spread: float | None, t: float
) -> None:
    """t of the degrees of freedom that are left: agents that say a spread trim four of ten blocks."""
    half = t * 0.01 / math.sqrt(count)
    found = by_blocks(blocks(1.0 + half, (1.0, (1.0 + half) ** 2), blocks=count, spread=spread))
    assert found.p == pytest.approx({2.776: 0.05, 3.0: 0.03, 2.262: 0.05}[t], rel=0.05)


def test_an_open_ratio_says_what_would_decide_it() -> None:
    for allowance, said in ((0.0, "blocks would decide it"), (0.2, "more blocks do not decide it")):
        ratio = blocks(1.03, (1.0, 1.06), spread=0.02, allowance=allowance)
        found = by_blocks(ratio)
        verdict_and_why = verdict_over(found, found.p, 0.01)
        assert verdict_and_why[0] == "open"
        assert said in verdict_and_why[1]
    assert verdict_over(by_blocks(blocks(1.5, (1.4, 1.6))), 0.0, 0.01, within_run=True)[0] == "faster"


@pytest.mark.parametrize(
    ("again", "reason", "said"),
    [
        ("running", None, "after: measuring again"),
        (None, Reason(code=ReasonCode.TIMEOUT, text="900 s"), "after: not measured again: timeout: 900 s"),
    ],
)
def test_an_earlier_result_that_stands_is_compared_and_says_nothing_of_this_run(again, reason, said):
    one = cell("net", "cpu")
    standing = replace(one, cell_id="new", reused_from=one.cell_id, again=again, reason=reason)
    report = compare_runs(by_names([one]), by_names([standing]))
    (change,) = report.changes
    assert (change.verdict, change.why, change.estimate is None) == ("open", said, False)
    other = replace(one, cell_id="b", again=again, reason=reason)
    (change,) = compare_runs(by_names([one]), by_names([other])).changes
    assert change.verdict not in ("broken", "missing")
    assert said in change.why
