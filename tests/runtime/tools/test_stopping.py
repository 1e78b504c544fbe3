"""When a warm-up is steady and when a loop has enough samples, on made-up times."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.tools.stopping import FEWEST, GROWTH, WINDOW, Precision, is_steady


def noisy(count: int, sd: float, level: float = 1e6, seed: int = 1) -> np.ndarray:
    return (level * np.exp(np.random.default_rng(seed).normal(0, sd, count))).astype(np.int64)


def first_end(samples: np.ndarray) -> tuple[str | None, int]:
    """Why and after how many of these samples a loop would end."""
    precision, count = Precision(), FEWEST
    while count < len(samples):
        if (stop := precision.look(samples[:count])) is not None:
            return stop, count
        count = int(np.ceil(GROWTH * count))
    return None, len(samples)


def test_a_warm_up_is_steady_once_its_windows_agree_and_are_calm():
    calm = noisy(3 * WINDOW, 0.005)
    assert is_steady(calm)
    assert not is_steady(calm[: 3 * WINDOW - 1]), "three windows are looked at"
    assert not is_steady(noisy(3 * WINDOW, 0.3)), "what varies so much shows no state"
    slow = calm * np.repeat([1.5, 1.2, 1.0], WINDOW)
    assert not is_steady(slow.astype(np.int64)), "it still becomes faster"
    assert is_steady(np.concatenate([slow.astype(np.int64), calm]))
    single = calm.copy()
    single[-3] *= 100
    assert is_steady(single), "one slow run is no other state"


def test_a_loop_ends_once_its_median_is_known():
    stop, count = first_end(noisy(100_000, 0.03))
    assert stop == "converged"
    # The half width of the median's interval is 1.96 * 1.25 * sd / sqrt(n).
    assert count == pytest.approx((1.96 * 1.25 * 0.03 / 0.01) ** 2, rel=0.6)
    assert first_end(noisy(100_000, 0.0))[1] == FEWEST


def test_a_loop_ends_once_more_samples_tell_nothing_new_of_its_noise():
    ends = [first_end(noisy(1_000_000, 1.0, seed=seed)) for seed in range(20)]
    assert {stop for stop, _ in ends} == {"noise_stable"}
    assert max(count for _, count in ends) < (1.96 * 1.25 / 0.01) ** 2 / 5, "long before it converges"


def test_a_few_samples_are_not_judged():
    assert Precision().look(noisy(FEWEST - 1, 0.0)) is None
