"""One grade and one verdict: their bounds, and how many blocks an open ratio needs."""

from __future__ import annotations

import math

import pytest

from runtime.common.verdict import FAIR, GOOD, blocks_to_decide, grade, verdict


@pytest.mark.parametrize(
    ("half", "allowance", "expected"),
    [
        (GOOD, 0.0, "good"),
        (0.02, 0.02, "fair"),
        (FAIR, 0.0, "fair"),
        (0.05, 0.06, "noisy"),
        (None, 0.0, "noisy"),
    ],
)
def test_a_grade_follows_from_half_width_and_allowance(half, allowance, expected):
    assert grade(half, allowance) == expected
    assert grade(half, allowance, void=True) == "void"
    assert grade(half, allowance, doubted=True) == ("fair" if expected == "good" else expected)


@pytest.mark.parametrize(
    ("ratio", "half", "allowance", "expected"),
    [
        (1.20, 0.10, 0.0, "faster"),
        (1.20, 0.10, 0.09, "open"),
        (0.80, 0.10, 0.0, "slower"),
        (1.01, 0.03, 0.0, "same"),
        (1.01, 0.03, 0.02, "open"),
        (1.015, 0.003, 0.0, "faster"),
        (100.0, None, 0.0, "open"),
    ],
)
def test_a_verdict_is_over_the_whole_interval(ratio, half, allowance, expected):
    assert verdict(math.log(ratio), half, allowance) == expected


def test_a_verdict_and_that_of_the_opposite_direction_agree():
    opposite = {"faster": "slower", "slower": "faster", "same": "same", "open": "open"}
    for centre in (-0.5, -0.02, 0.0, 0.012, 0.06, 1.0):
        assert verdict(-centre, 0.01) == opposite[verdict(centre, 0.01)]


def test_thresholds_are_arguments():
    assert verdict(math.log(1.03), 0.01, different=0.05) == "same"
    assert verdict(math.log(1.03), 0.01, same=0.02) == "faster"
    assert verdict(math.log(1.03), 0.03, same=0.02) == "open"


def test_more_blocks_decide_what_a_narrower_interval_would():
    needed = blocks_to_decide(0.05, 0.06, blocks=3)
    assert needed is not None
    assert 3 < needed < 40
    assert blocks_to_decide(0.05, 0.06, 0.2, blocks=3) is None
    assert blocks_to_decide(0.05, None, blocks=1) == 3
