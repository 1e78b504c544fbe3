"""The spread of medians by level, and the number of repetitions that follows from it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.measure.samples.variation import Timed, variation_of

CALL_NS = 1e6


def cell(rng, tunings, processes, samples, sds):
    """Return timed processes of a delegate whose tunings, processes and calls vary by these shares."""
    found = []
    for _ in range(tunings):
        level = rng.normal(0, sds[0])
        group = []
        for _ in range(processes):
            calls = level + rng.normal(0, sds[1]) + rng.normal(0, sds[2], samples)
            group.append(Timed((CALL_NS * np.exp(calls)).astype(int).tolist(), besides_s=2.0))
        found.append(group)
    return found


def test_the_spread_of_each_level_is_found():
    sds = (0.03, 0.01, 0.05)
    found = variation_of(cell(np.random.default_rng(1), 60, 5, 200, sds), [8.0] * 60)
    assert (found.level, found.tunings, found.processes) == ("tuning", 60, 300)
    assert found.tuning_sd == pytest.approx(sds[0], rel=0.25)
    assert found.process_sd == pytest.approx(sds[1], rel=0.25)
    # A median of normal noise varies as if each call did 1.25 times as much.
    assert found.sample_sd == pytest.approx(math.sqrt(math.pi / 2) * sds[2], rel=0.25)
    assert found.rounds_advised is None, "it was timed in one go"


def test_calls_that_are_alike_within_a_slice_vary_as_slices_do():
    """Seven slices of 40 calls: nothing but the waves, which 40 calls of a slice share."""
    rng, group = np.random.default_rng(5), []
    for _ in range(60):
        calls = rng.normal(0, 0.02) + np.repeat(rng.normal(0, 0.03, 7), 40) + rng.normal(0, 0.001, 280)
        group.append(Timed((CALL_NS * np.exp(calls)).astype(int).tolist(), 2.0, slices=[40] * 7))
    found = variation_of([group], [1.0])
    of_median = found.sample_sd / math.sqrt(280)
    assert of_median == pytest.approx(math.sqrt(math.pi / 2) * 0.03 / math.sqrt(7), rel=0.2)
    in_one_go = variation_of([[Timed(p.invoke_ns, 2.0) for p in group]], [1.0])
    assert in_one_go.sample_sd > 5 * 0.0015, "batches of one go see the waves too"
    assert found.rounds_advised == math.ceil(found.samples_advised / 40)


def test_advice_is_by_costs_and_variances():
    found = variation_of(cell(np.random.default_rng(2), 40, 5, 100, (0.03, 0.01, 0.05)), [8.0] * 40)
    by_rule = math.sqrt(2.0 / found.sample_s) * found.sample_sd / found.process_sd
    assert found.samples_advised == math.ceil(by_rule)
    assert found.processes_advised == math.ceil(math.sqrt(8.0 / 2.0) * found.process_sd / found.tuning_sd)
    assert found.units_advised == pytest.approx((2.0 * 0.03 / 0.01) ** 2, rel=0.5)


def test_a_level_that_was_not_repeated_is_not_judged():
    rng = np.random.default_rng(3)
    found = variation_of(cell(rng, 1, 4, 50, (0.0, 0.02, 0.01)), [5.0])
    assert (found.level, found.tuning_sd, found.processes_advised) == ("process", None, None)
    assert found.process_sd > 0
    alone = variation_of(cell(rng, 3, 1, 50, (0.02, 0.0, 0.01)), [5.0])
    assert (alone.level, alone.process_sd) == ("tuning", None)
    assert variation_of(cell(rng, 1, 1, 50, (0.0, 0.0, 0.01)), [5.0]) is None


def test_processes_that_do_not_differ_ask_for_no_further_ones():
    same = [[Timed(list(range(1_000_000, 1_000_100)), 1.0)] * 3]
    found = variation_of(same, [1.0])
    assert (found.process_sd, found.samples_advised, found.units_advised) == (0.0, None, None)
    few = [[Timed([100, 101], 1.0), Timed([103, 104], 1.0)]]
    assert variation_of(few, [1.0]).sample_sd is None, "two samples give a median no interval"
