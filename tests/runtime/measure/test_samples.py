"""The definition of a percentile and of a cell's summary, against fixed vectors."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.statistics import estimate
from runtime.measure.samples.summary import FLOORS, ProcessTimes, percentile, process_median, summarise


def test_with_several_tunings_p50_and_its_interval_are_over_them():
    levels = ((0, 1.0), (0, 1.2), (1, 2.0), (2, 1.5), (0, 1.1))
    found = summarise([ProcessTimes("warm", 1, 1, [int(level * 1e6)] * 11, t) for t, level in levels])
    units = [(1.0 * 1.2 * 1.1) ** (1 / 3), 2.0, 1.5]
    assert found.p50 == pytest.approx(math.prod(units) ** (1 / 3))
    assert found.ci95 == pytest.approx(estimate([math.log(unit) for unit in units]).interval)
    two = summarise([ProcessTimes("warm", 1, 1, [1_000_000] * 11, t) for t, _ in levels if t < 2])
    assert two.ci95 is None
    assert two.missing["ci95"] == "2 tunings; an interval needs 3"


TENS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


@pytest.mark.parametrize(
    ("samples", "q", "expected"),
    [
        (TENS, 0.50, 50),
        (TENS, 0.51, 60),
        (TENS, 0.90, 90),
        (TENS, 0.99, 100),
        (TENS, 0.07, 10),
        (TENS, 1.00, 100),
        ([15, 20, 35, 40, 50], 0.30, 20),
        ([15, 20, 35, 40, 50], 0.40, 20),
        ([15, 20, 35, 40, 50], 0.50, 35),
        ([3, 6, 7, 8, 8, 10, 13, 15, 16, 20], 0.75, 15),
        ([7], 0.5, 7),
        ([9, 1], 0.5, 1),
        (list(range(1, 101)), 0.07, 7),
        (list(range(1, 101)), 0.29, 29),
    ],
)
def test_percentile_is_the_nearest_rank(samples, q, expected):
    shuffled = samples.copy()
    random.Random(1).shuffle(shuffled)
    assert percentile(shuffled, q) == expected


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0.001, 1.0))
def test_percentile_is_the_smallest_sample_that_enough_samples_do_not_exceed(samples, q):
    value = percentile(samples, q)
    at_most = sum(s <= value for s in samples)
    below = sum(s < value for s in samples)
    assert value in samples
    assert at_most >= q * len(samples) - 1e-6
    assert below < q * len(samples) + 1e-6


@pytest.mark.parametrize(("samples", "q"), [([], 0.5), ([1], 0.0), ([1], 1.1)])
def test_percentile_refuses_what_is_not_defined(samples, q):
    with pytest.raises(ValueError, match=r"percentile|q must"):
        percentile(samples, q)


@pytest.mark.parametrize(
    ("samples", "slices", "expected"),
    [
        ([3, 1, 2], (), 2),
        ([1, 1, 1, 9, 9, 9, 2, 2, 2], (3, 3, 3), 2),
        ([1, 1, 1, 1, 1, 5, 9], (5, 1, 1), 5),
        ([1, 3], (1, 1), 2),
    ],
    ids=["in one go", "a slow slice is one of three", "slices weigh the same", "two slices"],
)
def test_the_median_of_a_process_is_that_of_its_slices(samples, slices, expected):
    assert process_median(samples, slices) == expected


def processes(*medians_ms: float, samples: int = 700) -> list[ProcessTimes]:
    return [
        ProcessTimes("cold" if i == 0 else "warm", 5_000_000 - i, 3_000_000 + i, [int(m * 1e6)] * samples)
        for i, m in enumerate(medians_ms)
    ]


def test_the_median_of_a_cell_is_the_geometric_mean_over_its_processes():
    latency = summarise(processes(1.0, 2.0, 4.0))
    assert latency.p50 == pytest.approx(2.0)
    assert (latency.p90, latency.p95, latency.p99) == (4.0, 4.0, 4.0)
    assert latency.mean == pytest.approx(7 / 3)
    assert latency.init == pytest.approx(5.0)
    assert latency.init_warm == pytest.approx(4.9999985)
    assert latency.first == pytest.approx(3.0)
    assert latency.first_warm == pytest.approx(3.0000015)
    assert latency.missing == {}
    assert latency.p99_ci95 == pytest.approx(latency.ci95), "all samples of a process are equal"


def test_one_slow_process_of_six_moves_p50_by_nothing_and_is_seen_in_the_tails():
    """A mean of the processes' own p90 would be 1.12 ms, which a sixth of all calls exceeds twice over."""
    latency = summarise(processes(*[1.0] * 5, 2.0))
    assert latency.p50 == pytest.approx(1.0)
    assert latency.p90 == latency.p95 == latency.p99 == 2.0
    assert latency.p99_ci95 == (pytest.approx(1.0), 2.0), "the interval reaches up to the bound"


def test_a_tail_is_a_bound_from_as_many_samples_as_the_cell_has():
    samples = [1_000_000 + 37 * i % 100 for i in range(100)]
    assert summarise([ProcessTimes("warm", 1, 1, samples)]).p90 == pytest.approx(1.000098)
    assert percentile(samples, 0.9) == 1_000_089
    two = summarise([ProcessTimes("warm", 1, 1, part) for part in (samples[::2], samples[1::2])])
    assert two.p90 == pytest.approx(1.000098), "the floor holds for the cell"
    assert two.missing["p90_ci95"] == "50 samples of a process; an interval of p90 needs 64"
    assert two.missing["p95"] == "100 samples; p95 needs 130"


def test_samples_that_come_in_bursts_are_worth_fewer():
    """A tenth of the slices are slow throughout: a hundred samples tell as much as a few."""
    slices = [[1_000_000] * 10] * 18 + [[2_000_000] * 10] * 2
    burst = [sample for part in slices for sample in part]
    found = summarise([ProcessTimes("warm", 1, 1, burst, slices=[10] * 20)])
    assert found.p90 is None
    assert re.fullmatch(
        r"200 samples, no more than \d\d independent ones; p90 needs 64", found.missing["p90"]
    )


@pytest.mark.parametrize(("name", "floor"), FLOORS.items())
def test_percentile_below_its_floor_is_null_and_says_why(name, floor):
    below = summarise([ProcessTimes("cold", 1, 1, [1_000_000] * (floor - 1))])
    assert getattr(below, name) is None
    assert below.missing[name] == f"{floor - 1} samples; {name} needs {floor}"
    at = summarise([ProcessTimes("cold", 1, 1, [1_000_000] * floor)])
    assert getattr(at, name) == pytest.approx(1.0)
    assert name not in at.missing


def test_interval_below_three_processes_is_null_and_says_why():
    latency = summarise(processes(1.0, 1.1))
    assert latency.ci95 is None
    assert latency.missing["ci95"] == "2 processes; an interval needs 3"


def test_single_cold_process_has_no_warm_init_and_says_so():
    latency = summarise(processes(1.0))
    assert latency.init_warm is None
    assert "filled caches" in latency.missing["init_warm"]


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(1, 10**9), min_size=64, max_size=80), min_size=3, max_size=9))
def test_percentiles_are_ordered_and_the_interval_holds_the_median(samples):
    latency = summarise([ProcessTimes("warm", 1, 1, s) for s in samples])
    assert latency.p50 <= latency.p90 * (1 + 1e-12)
    low, high = latency.ci95
    assert low <= latency.p50 * (1 + 1e-9)
    assert latency.p50 <= high * (1 + 1e-9)
