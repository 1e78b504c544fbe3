"""Signs of disturbance, on samples made for the purpose."""

from __future__ import annotations

import numpy as np

from runtime.measure.samples.noise import Usage, host_pressure, noise_flags

QUIET = Usage(wall_s=2.0, cpu_s=2.0, involuntary_switches=10, major_faults=0)
STEADY = np.random.default_rng(1).normal(1e6, 1e4, 300).astype(np.int64)


def flags(samples, spent=QUIET, overhead=50.0):
    return [flag.split(":")[0] for flag in noise_flags(samples.astype(np.int64), spent, overhead)]


def test_quiet_process_has_no_flags():
    assert flags(STEADY) == []


def test_slowing_down_is_drift():
    assert flags(STEADY * np.where(np.arange(300) < 200, 1.0, 1.05)) == ["drift", "autocorrelated"]
    assert "+" in noise_flags((STEADY * np.linspace(1, 1.2, 300)).astype(np.int64), QUIET, 50.0)[0]


def test_a_large_step_is_drift_of_fewer_samples_too():
    step = np.where(np.arange(100) < 50, 1.0, 1.3)
    assert "drift" in flags(STEADY[:100] * step)
    assert "drift" in flags(STEADY[:100] / step), "faster, too"
    assert "drift" not in flags(STEADY[:100] * np.where(np.arange(100) < 50, 1.0, 1.05))
    assert "drift" not in flags(STEADY[:50] * step[25:75]), "too few to tell"


def test_waves_in_the_times_are_flagged_as_autocorrelation():
    assert flags(STEADY * (1 + 0.1 * np.sin(np.arange(300) / 10))) == ["autocorrelated"]


def test_waves_too_small_to_matter_are_not_flagged():
    assert flags(1e6 * (1 + 0.01 * np.sin(np.arange(300) / 10))) == []


def test_page_faults_are_told_where_they_may_move_a_percentile():
    assert flags(STEADY, Usage(2.0, 2.0, 0, 4)) == ["page_faults"]
    assert flags(STEADY, Usage(2.0, 2.0, 0, 3)) == []


def test_how_often_a_process_was_switched_disturbs_nothing():
    assert flags(STEADY, Usage(2.0, 2.0, 10_000, 0)) == []


def test_clock_that_takes_its_share_is_told():
    assert flags(STEADY // 1000, overhead=11.0) == ["timer_overhead"]


def test_few_samples_and_equal_samples_raise_no_false_alarm():
    assert flags(np.array([1e6, 5e6, 9e6])) == []
    assert flags(np.full(100, 1_000_000)) == []


def test_usage_counts_what_this_process_did():
    before = Usage.now()
    sum(range(200_000))
    spent = Usage.now() - before
    assert spent.wall_s > 0
    assert set(spent.facts()) == {"involuntary_switches", "major_faults", "cpu_seconds_per_second"}
    assert float(host_pressure()["load_average_1min"]) >= 0
