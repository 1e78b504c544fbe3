"""The definition of a percentile and of a cell's summary, against fixed vectors."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.tools.samples import (
    FLOORS,
    ProcessTimes,
    interval_of_medians,
    median_interval,
    percentile,
    summarise,
)
from runtime.tools.tails import mixture_quantile, tail_interval


def test_with_several_tunings_p50_and_its_interval_are_over_them():
    levels = ((0, 1.0), (0, 1.2), (1, 2.0), (2, 1.5), (0, 1.1))
    found = summarise([ProcessTimes("warm", 1, 1, [int(level * 1e6)] * 11, t) for t, level in levels])
    units = [(1.0 * 1.2 * 1.1) ** (1 / 3), 2.0, 1.5]
    assert found.p50 == pytest.approx(math.prod(units) ** (1 / 3))
    assert found.ci95 == pytest.approx(interval_of_medians(units))
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
    ("n", "q", "ranks"),
    [
        (100, 0.50, (40, 61)),
        (100, 0.90, (84, 96)),
        (200, 0.95, (184, 197)),
        (400, 0.50, (180, 221)),
        (1000, 0.50, (469, 532)),
        (1000, 0.99, (983, 997)),
    ],
)
def test_order_statistic_interval_has_the_known_ranks(n, q, ranks):
    assert median_interval(n, q) == ranks


def test_order_statistic_interval_of_few_samples_is_unbounded():
    assert median_interval(5, 0.99) == (4, None)
    assert median_interval(5, 0.5) == (None, None)


def test_interval_of_three_processes_is_a_t_interval_of_logarithms():
    low, high = interval_of_medians([1.0, 2.0, 4.0])
    half = 4.302653 * math.log(2.0) / math.sqrt(3)
    assert (low, high) == pytest.approx((2.0 * math.exp(-half), 2.0 * math.exp(half)), rel=1e-4)


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
    assert latency.missing == dict.fromkeys(
        ("p90_ci95", "p99_ci95"), "3 processes; an interval of a tail needs 10"
    )


def test_one_slow_process_of_ten_is_seen_in_the_tails():
    """A mean of the processes' own p99 would be 1.07 ms, which a tenth of all calls exceeds twice over."""
    latency = summarise(processes(*[1.0] * 9, 2.0))
    assert latency.p90 == latency.p50 == pytest.approx(2 ** (1 / 10)), "never below p50"
    assert latency.p95 == latency.p99 == 2.0
    low, high = latency.p99_ci95
    assert (low, high) == (1.0, 2.0), "without that process there would be no such tail"


@given(
    st.lists(st.lists(st.integers(1, 10**6), min_size=1, max_size=40), min_size=1, max_size=6),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_a_tail_is_the_quantile_of_the_equal_weight_mixture(samples, q):
    value = mixture_quantile(samples, q)

    def share(of):
        return math.fsum(sum(s <= of for s in process) / len(process) for process in samples) / len(samples)

    assert share(value) >= q - 1e-6
    assert share(value - 1) < q + 1e-6


def test_a_tail_of_one_process_is_its_nearest_rank():
    samples = list(range(1, 1000))
    assert mixture_quantile([samples], 0.99) == percentile(samples, 0.99)


def test_an_interval_of_a_tail_covers_it_as_often_as_it_says():
    """Processes differ by 3 %, calls by 10 %: 200 cells of twelve processes."""
    rng = np.random.default_rng(11)
    true = float(np.quantile(np.exp(rng.normal(0, 0.03, (400, 1)) + rng.normal(0, 0.1, (400, 2500))), 0.9))
    covered = 0
    for _ in range(200):
        level = rng.normal(0, 0.03, (12, 1))
        cell = (1e6 * np.exp(level + rng.normal(0, 0.1, (12, 300)))).astype(np.int64)
        low, high = tail_interval(cell, 0.9)
        covered += low <= true * 1e6 <= high
    assert 0.85 <= covered / 200 <= 1.0


def test_an_interval_of_a_tail_is_the_same_every_time():
    cell = np.random.default_rng(1).integers(10**6, 2 * 10**6, (10, 700))
    assert tail_interval(cell, 0.99) == tail_interval(cell, 0.99)
    assert tail_interval(cell[:9], 0.99) is None


@pytest.mark.parametrize(("name", "floor"), FLOORS.items())
def test_percentile_below_its_floor_is_null_and_says_why(name, floor):
    below = summarise([ProcessTimes("cold", 1, 1, [1_000_000] * (floor - 1))])
    assert getattr(below, name) is None
    of = "" if name == "p50" else " of a process"
    assert below.missing[name] == f"{floor - 1} samples{of}; {name} needs {floor}"
    at = summarise([ProcessTimes("cold", 1, 1, [1_000_000] * floor)])
    assert getattr(at, name) == pytest.approx(1.0)
    assert name not in at.missing


def test_the_floor_of_a_tail_holds_in_every_process():
    enough, few = [1_000_000] * 700, [1_000_000] * 20
    latency = summarise([ProcessTimes("warm", 1, 1, samples) for samples in (enough, enough, few)])
    assert latency.p50 == pytest.approx(1.0)
    assert latency.p99 is None
    assert latency.missing["p99"] == "20 samples of a process; p99 needs 662"


def test_interval_below_three_processes_is_null_and_says_why():
    latency = summarise(processes(1.0, 1.1))
    assert latency.ci95 is None
    assert latency.missing["ci95"] == "2 processes; an interval needs 3"


def test_single_cold_process_has_no_warm_init_and_says_so():
    latency = summarise(processes(1.0))
    assert latency.init_warm is None
    assert "filled caches" in latency.missing["init_warm"]


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=64, max_size=80), min_size=3, max_size=9))
def test_percentiles_are_ordered_and_the_interval_holds_the_median(samples):
    latency = summarise([ProcessTimes("warm", 1, 1, s) for s in samples])
    assert latency.p50 <= latency.p90 * (1 + 1e-12)
    low, high = latency.ci95
    assert low <= latency.p50 * (1 + 1e-9)
    assert latency.p50 <= high * (1 + 1e-9)
