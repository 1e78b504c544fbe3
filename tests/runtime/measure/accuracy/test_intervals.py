"""Intervals of shares and of paired differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.measure.accuracy.intervals import Mean, judged_drop, paired_share_interval

Z = 1.959964
COUNTS = [(9, 5, 50), (0, 0, 20), (3, 0, 15), (0, 7, 40), (150, 86, 1600), (1, 12, 13)]


def score_at(difference, gained, lost, count):
    """Return the score statistic with the likelihood maximised by trying, not by Tango's formula."""
    low = max(0.0, -difference)
    q = np.linspace(low, (1 - difference) / 2, 400_001)[1:-1]
    rest = np.clip(1 - 2 * q - difference, 1e-300, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [(gained, q + difference), (lost, q), (count - gained - lost, rest)]
        likelihood = sum(n * np.log(p) for n, p in terms if n)
    best = q[int(np.argmax(likelihood))] if gained + lost else max(low, 0.0)
    variance = count * (2 * best + difference - difference**2)
    return (gained - lost - count * difference) / math.sqrt(variance)


@pytest.mark.parametrize(("gained", "lost", "count"), COUNTS)
def test_the_ends_are_where_the_score_test_begins_to_reject(gained, lost, count):
    low, high = paired_share_interval(gained, lost, count)
    assert low <= (gained - lost) / count <= high
    if low > -1:
        assert score_at(low, gained, lost, count) == pytest.approx(Z, abs=2e-3)
    if high < 1:
        assert score_at(high, gained, lost, count) == pytest.approx(-Z, abs=2e-3)


@pytest.mark.parametrize(("gained", "lost"), [(10, 2), (10, 3), (8, 1), (5, 0), (3, 0), (40, 25), (40, 22)])
def test_no_difference_is_outside_exactly_where_mcnemars_test_rejects(gained, lost):
    low, high = paired_share_interval(gained, lost, 200)
    assert (low > 0) == ((gained - lost) ** 2 / (gained + lost) > Z**2)
    assert paired_share_interval(lost, gained, 200) == pytest.approx((-high, -low))


def test_counts_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="3 gained and 2 lost of 4"):
        paired_share_interval(3, 2, 4)


def test_a_mean_is_that_of_all_values_at_once():
    values = np.random.default_rng(0).normal(5, 2, 1000)
    found = Mean.of(values.tolist())
    half = Z * values.std(ddof=1) / math.sqrt(1000)
    assert found.interval == pytest.approx((values.mean() - half, values.mean() + half))
    assert Mean.of([1.0]).interval is None


@pytest.mark.parametrize(
    ("interval", "better", "verdict"),
    [((-0.02, 0.01), True, "inconclusive"), ((-0.009, 0.01), True, "pass"), ((-0.5, -0.02), True, "fail"),
     ((-0.5, 0.009), False, "pass"), ((0.02, 0.5), False, "fail")],
)  # fmt: skip
def test_a_drop_is_judged_by_its_whole_interval(interval, better, verdict):
    assert judged_drop(interval, 0.01, higher_is_better=better) == verdict
