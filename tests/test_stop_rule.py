"""The rule that ends blocks, under simulated noise: short runs of what `benchmarks/statistics.py` marks."""

from __future__ import annotations

import numpy as np
import pytest

from agent.attempt.files import ProcessReport
from agent.runner.judge.blocks import block_figures
from agent.wire.measurement import ProcessSamples, TimedSlice
from benchmarks import statistics_of_sessions
from benchmarks.noisy_blocks import CALM, DEMO, ROUNDS, Noise, block_logs, slice_medians
from benchmarks.statistics import outcomes, share
from benchmarks.statistics_of_sessions import sessions, share_called
from orchestrator.manifest.plans import LEVELS
from orchestrator.results.change_estimates import Variance
from runtime.common.statistics import freedom_of

TRIALS = 400


def test_the_simulated_ratio_of_a_block_is_the_one_that_the_runner_takes():
    medians = slice_medians(np.random.default_rng(1), DEMO, 1, 1, 2)
    reports = []
    for arm in range(2):
        samples = ProcessSamples(
            index=1, cache="warm", init_ns=1, first_ns=1, warmup_ns=(), memory_peak_bytes=0,
            memory_before_bytes=0, invoke_ns=tuple((1e9 * np.exp(medians[0, 0, arm])).astype(int).tolist()),
            slices=tuple(TimedSlice(round=number, runs=1) for number in range(ROUNDS)),
        )  # fmt: skip
        reports.append(ProcessReport(samples=samples))
    (found,) = block_figures([reports[1]], [reports[0]])
    times, ratios = block_logs(medians)
    assert found.log_ratio == pytest.approx(float(ratios[0, 0, 0]), abs=1e-8)
    assert np.log(found.p50_ns / 1e9) == pytest.approx(float(times[0, 0, 1]), abs=1e-8)


@pytest.mark.parametrize("noise", [DEMO, CALM], ids=["slow processes", "none"])
@pytest.mark.parametrize("level", LEVELS)
def test_equal_arms_are_rarely_told_apart_and_the_interval_holds_the_truth(level: str, noise: Noise) -> None:
    found = outcomes(7, LEVELS[level], noise, 0.0, TRIALS)
    assert len(found) == 2 * TRIALS
    assert share(found, "faster", "slower") <= 0.02
    assert 0.92 <= np.mean([one.held for one in found]) <= 0.99


@pytest.mark.parametrize(("level", "least"), [("quick", 0.95), ("standard", 0.99)])
def test_a_difference_of_a_tenth_is_found(level: str, least: float) -> None:
    found = outcomes(8, LEVELS[level], CALM, 0.10, TRIALS)
    assert share(found, "faster") >= least
    assert share(found, "slower", "same") == 0.0


def test_sessions_are_compared_by_the_interval_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten blocks, whose trimmed mean has five degrees of freedom."""
    found: list[list[Variance]] = []
    monkeypatch.setattr(
        statistics_of_sessions, "unpaired", lambda _log, variances, _spread: found.append(variances)
    )
    sessions(9, LEVELS["publish"], CALM, 0.0, 1)
    ((first, second),) = found
    assert first[1] == second[1] == freedom_of(10) == 5


def test_sessions_that_differ_are_no_difference_of_their_cells():
    assert share_called(sessions(9, LEVELS["quick"], CALM, 0.0, TRIALS)) <= 0.05
