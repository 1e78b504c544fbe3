"""When a warm-up is steady, on made-up times."""

from __future__ import annotations

import numpy as np

from runtime.measure.warm_up import WINDOW, is_steady


def noisy(count: int, sd: float, level: float = 1e6, seed: int = 1) -> np.ndarray:
    return (level * np.exp(np.random.default_rng(seed).normal(0, sd, count))).astype(np.int64)


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
