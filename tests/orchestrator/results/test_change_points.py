"""Changes of level: small steps that add up are found, noise alone is not."""

from __future__ import annotations

import math
import random

import pytest

from orchestrator.results.change_points import changes_of


def _steps(seed: int, spread: float, each: int) -> list[float]:
    rng = random.Random(seed)
    return [math.log(1.02) * step + rng.gauss(0, spread) for step in range(4) for _ in range(each)]


@pytest.mark.parametrize("seed", range(5))
def test_steps_of_two_per_cent_are_reported_and_add_up(seed):
    found = changes_of(_steps(seed, 0.005, 10))
    assert [abs(change.index - 10 * place) <= 1 for place, change in enumerate(found[:3], 1)] == [True] * 3
    assert found[2].best == 0
    assert math.expm1(found[2].since_best) == pytest.approx(0.0612, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_steps_that_are_too_small_to_be_told_apart_are_reported_as_one(seed):
    found = changes_of(_steps(seed, 0.02, 10))
    assert found
    assert max(change.since_best for change in found) > 0.03


def test_noise_alone_gives_at_most_two_false_alarms_in_200_points():
    alarms = []
    for seed in range(20):
        rng = random.Random(seed)
        slow = [0.05 * (rng.random() < 0.02) for _ in range(200)]
        alarms.append(len(changes_of([rng.gauss(0, 0.01) + one for one in slow])))
    assert max(alarms) <= 2
    assert sum(alarms) <= 4, "of 4,000 points"


def test_an_outlier_is_no_change_and_a_last_value_far_off_is_one():
    rng = random.Random(1)
    level = [rng.gauss(0, 0.005) for _ in range(30)]
    assert changes_of([*level[:15], 0.2, *level[15:]]) == ()
    (found,) = changes_of([*level, 0.2])
    assert (found.index, found.after) == (30, 1)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [0.5] * 50])
def test_too_few_values_and_equal_ones_have_no_change(values):
    assert changes_of(values) == ()


def test_a_gain_is_no_loss_since_the_best():
    (found,) = changes_of([0.0, 0.001] * 10 + [-0.1, -0.101] * 10)
    assert found.step == pytest.approx(-0.101, abs=0.001)
    assert found.since_best == found.step
