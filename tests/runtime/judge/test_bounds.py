"""Each bound of an output's error by itself: an error that only this one notices."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.judge.bounds import Draws, cosine_excess, excesses
from runtime.judge.figures import figures
from runtime.judge.rules import Arithmetic, rule_for

FP32 = rule_for(Arithmetic.FLOAT, integer_path=True, precision="fp32")
SCATTER = rule_for(Arithmetic.MIXED, integer_path=True, precision="fp32", draws=["xnnpack"])
ALONE = Draws([[]], [1.0])

R = np.random.default_rng(5).normal(size=(16, 16, 4))
R[3] = 1e-3
FLOOR = FP32.floor(R, 0.0)
ALTERNATING = np.where(np.arange(64) % 2, 1.0, -1.0).reshape(16, 4)


def one_value() -> np.ndarray:
    error = np.zeros_like(R)
    error[3, 5, 1] = 1.2 * FLOOR.largest
    return error


def one_row() -> np.ndarray:
    error = np.zeros_like(R)
    error[3] = 1.15 * FLOOR.slices * ALTERNATING
    return error


@pytest.mark.parametrize(
    ("error", "noticed"),
    [
        (np.zeros_like(R), []),
        (0.9 * FLOOR.rms * np.sign(R) * np.resize([1.0, -1.0], R.shape), []),
        (1.5 * FLOOR.rms * np.sign(R) * np.resize([1.0, -1.0], R.shape), ["root mean square of y-r"]),
        (one_value(), ["weighted error of value 213"]),
        (np.full_like(R, 0.9 * FLOOR.rms), ["mean of y-r"]),
        (0.9e-4 * (R - R.mean()), ["slope of y-r over r"]),
        (one_row(), ["weighted norm of row of axis 0 3"]),
    ],
    ids=["none", "rounding", "too much of it", "one value", "offset", "gain", "one row"],
)
def test_an_error_is_noticed_by_the_bound_that_is_for_it(error, noticed):
    found = excesses(figures(error, R), ALONE, 0, FLOOR)
    assert [one.text.partition(":")[0] for one in found if one.ratio > 1.0] == noticed


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1.1, True), (1.5, False), (0.5, False)])
def test_without_honest_runs_the_direction_alone_does_not_pass(scale, is_right):
    assert (cosine_excess(scale * R, R).ratio <= 1.0) == is_right


def test_clamped_values_leave_no_room_for_rounding():
    free = np.linspace(0.0, 1.0, 1000)
    clamped = np.clip(free, 0.45, 0.55)
    floors = [SCATTER.floor(reference, 0.01).rms for reference in (free, clamped)]
    assert floors[0] == pytest.approx(0.005, rel=0.01)
    assert floors[1] == pytest.approx(0.005 * np.sqrt(0.1), rel=0.02)
