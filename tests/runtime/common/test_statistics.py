"""Intervals over units: what few and many of them give, and what one slow process does to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.common import student
from runtime.common.statistics import ROBUST_UNITS, estimate, geometric_mean, quantile_for, units, units_for


def test_few_units_have_no_interval_and_none_have_no_centre():
    assert estimate([0.1, 0.3]).half is None
    assert estimate([0.1, 0.3]).centre == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no units"):
        estimate([])


def test_below_six_units_the_interval_is_students():
    logs = [0.0, 0.1, 0.2, 0.3]
    expected = student.quantile(3) * np.std(logs, ddof=1) / 2
    assert estimate(logs).half == pytest.approx(expected)


def test_from_six_units_on_one_slow_unit_moves_the_centre_by_nothing():
    usual = [0.0, 0.01, -0.01, 0.005, -0.005]
    assert estimate([*usual, 0.9]).centre == pytest.approx(estimate([*usual, 0.02]).centre)


@pytest.mark.parametrize("count", [6, 8, 12, 40])
def test_the_interval_holds_the_truth_as_often_as_it_says(count):
    rng = np.random.default_rng(count)
    found = [estimate(rng.normal(0.0, 0.03, count).tolist()) for _ in range(1500)]
    held = np.mean([abs(one.centre) <= one.half for one in found])
    assert 0.93 <= held <= 0.97


@pytest.mark.parametrize("count", [3, ROBUST_UNITS, 9])
def test_the_spread_gives_the_half_width_of_as_many_units(count):
    rng = np.random.default_rng(1)
    found = estimate(rng.normal(0.0, 0.1, count).tolist())
    assert found.half == pytest.approx(quantile_for(count) * found.spread / math.sqrt(count))


def test_a_geometric_mean():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([0.0, 4.0]) == 0.0
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("aaaa", [1.0, 2.0, 3.0, 6.0]),
        ("abab", [2.0, 4.0]),
        ("abcc", [1.0, 2.0, 4.5]),
        ("abcd", [1.0, 2.0, 3.0, 6.0]),
    ],
)
def test_groups_are_the_units_once_they_are_enough_for_an_interval(
    groups: str, expected: list[float]
) -> None:
    assert units([1.0, 2.0, 3.0, 6.0], groups) == pytest.approx(expected)


@pytest.mark.parametrize(("spread", "half"), [(0.03, 0.05), (0.03, 0.01), (0.2, 0.03), (0.001, 0.5)])
def test_so_many_units_have_the_half_width_that_was_asked_for(spread: float, half: float) -> None:
    count = units_for(spread, half)
    assert quantile_for(count) * spread / math.sqrt(count) <= half
    fewer = count - 1 - count // 50
    assert fewer < 3 or quantile_for(fewer) * spread / math.sqrt(fewer) > half
