"""Bounds of tails: the rank that LoadGen takes, and how often it is too low."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.measure.samples.summary import FLOORS, TAILS, percentile
from runtime.measure.samples.tails import (
    batches,
    conservative_share,
    design_effect,
    independent_samples,
    mixture_quantile,
)


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


def test_a_quantile_of_one_process_is_its_nearest_rank():
    samples = list(range(1, 1000))
    assert mixture_quantile([samples], 0.99) == percentile(samples, 0.99)


@pytest.mark.parametrize(
    ("q", "count", "left_out"),
    [
        (0.50, 11, 0), (0.50, 14, 1), (0.90, 64, 0), (0.90, 80, 0), (0.90, 81, 1), (0.95, 130, 0),
        (0.95, 165, 1), (0.99, 662, 0), (0.99, 838, 1), (0.99, 100_000, 926), (0.90, 1_000_000, 99_301),
    ],
)  # fmt: skip
def test_the_bound_leaves_out_as_many_samples_as_loadgen(q, count, left_out):
    assert conservative_share(count, q) == pytest.approx((count - left_out) / count, abs=1e-9)


@pytest.mark.parametrize(("name", "floor"), FLOORS.items())
def test_the_floors_are_the_fewest_samples_that_give_a_bound(name, floor):
    q = TAILS.get(name, 0.5)
    assert conservative_share(floor, q) == 1.0
    assert conservative_share(floor - 1, q) is None
    assert conservative_share(1, q) is None


@pytest.mark.parametrize("resemblance", [0.0, 0.9])
def test_a_bound_is_rarely_too_low(resemblance):
    """Of 300 cells of three processes, with calls that are alike within slices or not; marked at 1 %."""
    rng, q, low = np.random.default_rng(3), 0.9, 0
    true = math.exp(1.2815516)
    for _ in range(300):
        calls = rng.normal(size=(3, 7, 40)) * math.sqrt(1 - resemblance)
        calls += rng.normal(size=(3, 7, 1)) * math.sqrt(resemblance)
        cell = [[part.tolist() for part in process] for process in (1e6 * np.exp(calls)).astype(int)]
        share = conservative_share(independent_samples(cell, q), q)
        joined = [[call for part in process for call in part] for process in cell]
        low += share is not None and mixture_quantile(joined, share) < 1e6 * true
    assert low <= 9


@pytest.mark.parametrize(
    ("slices", "lengths"),
    [((), [5] * 20), ((60, 0, 40), [60, 40])],
)
def test_batches_are_the_slices_or_equal_parts(slices, lengths):
    parts = batches(range(100), slices)
    assert [len(part) for part in parts] == lengths
    assert [sample for part in parts for sample in part] == list(range(100))


@pytest.mark.parametrize(
    ("parts", "effect"),
    [
        ([[1, 2]] * 4, 1.0),
        ([[1, 1], [2, 2], [1, 1], [2, 2]], 8 / 3),
        ([[1, 1], [2, 2]], 1.0),
        ([[1, 1]] * 4, 1.0),
    ],
    ids=["alternating", "alike within batches", "too few", "none above"],
)
def test_what_is_alike_within_batches_counts_for_less(parts, effect):
    assert design_effect([parts], 1) == pytest.approx(effect)
    assert design_effect([parts, [[1] * 2] * 4], 1) == pytest.approx(effect), "one without any tells nothing"
