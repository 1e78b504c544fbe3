"""Simulate blocks of alternating slices on a noisy machine, of which the truth is known.

The noise is that of a virtual machine with two cores: some processes are slow for their whole life, the
machine's speed comes in waves that all arms share, and single calls take several times as long.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent.runner.judge.blocks import order_of_round

Floats: TypeAlias = NDArray[np.float64]

ROUNDS: Final = 7
"""Rounds of a block, as every level has them."""

CALLS: Final = 10
"""Calls of a slice of 0.1 s: the model takes 10 ms. Of a faster one more calls settle the median better."""

_CALL_S: Final = 0.01
"""Seconds of a call, which place it in the waves."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The disturbances of a call, each as a share; pairs are bounds between which every comparison draws its
    own.

    A share `slow` of the processes takes `slow_factor` as long; processes differ by `process_sd` besides.
    `wave_sd` and `wave_s`: deviation of the machine's speed, and how long it resembles itself. A share
    `spikes` of the calls takes up to `spike_factor` as long, and all of them differ by `call_sd`.
    """

    slow: tuple[float, float] = (0.10, 0.25)
    slow_factor: float = 1.5
    process_sd: float = 0.01
    wave_sd: tuple[float, float] = (0.03, 0.04)
    wave_s: tuple[float, float] = (0.1, 2.0)
    spikes: float = 0.03
    spike_factor: float = 8.0
    call_sd: float = 0.02


DEMO: Final = Noise()
"""The demo's machine, as its raw samples have it."""

CALM: Final = Noise(slow=(0.0, 0.0))
"""The same machine where no process is slow for its whole life."""


def slice_medians(rng: np.random.Generator, noise: Noise, trials: int, blocks: int, arms: int) -> Floats:
    """Return the logarithms of slice medians of equal arms, by trial, block, arm and round."""
    calls = ROUNDS * arms * CALLS
    logs = _waves(rng, noise, (trials, blocks), calls)
    logs += rng.normal(0.0, noise.call_sd, logs.shape)
    spiked = rng.random(logs.shape) < noise.spikes
    logs[spiked] += np.log(rng.uniform(1.0, noise.spike_factor, int(spiked.sum())))
    medians = np.median(logs.reshape(trials, blocks, ROUNDS, arms, CALLS), axis=-1)
    places = _places(rng, (trials, blocks), arms)
    taken = np.take_along_axis(medians, places, axis=3)
    return np.moveaxis(taken, 2, 3) + _processes(rng, noise, (trials, blocks, arms))[..., None]


def _waves(rng: np.random.Generator, noise: Noise, shape: tuple[int, int], calls: int) -> Floats:
    """Return the machine's slowness at every call of a block: Gaussian, forgotten exponentially."""
    # Drawn evenly in the logarithm, as the bounds are a factor of 20 apart.
    low, high = np.log(noise.wave_s)
    kept = np.exp(-_CALL_S / np.exp(rng.uniform(low, high, shape)))
    # So that the variance stays 1 from call to call.
    fresh = np.sqrt(1.0 - kept**2)
    path = np.empty((calls, *shape))
    path[0] = rng.normal(size=shape)
    for call in range(1, calls):
        path[call] = kept * path[call - 1] + fresh * rng.normal(size=shape)
    return np.moveaxis(path, 0, -1) * rng.uniform(*noise.wave_sd, (*shape, 1))


def _processes(rng: np.random.Generator, noise: Noise, shape: tuple[int, int, int]) -> Floats:
    """Return what each process is slower by; the share of slow ones is that of its trial."""
    share = rng.uniform(*noise.slow, (shape[0], 1, 1))
    slow = np.where(rng.random(shape) < share, np.log(noise.slow_factor), 0.0)
    return slow + rng.normal(0.0, noise.process_sd, shape)


def _places(rng: np.random.Generator, shape: tuple[int, int], arms: int) -> NDArray[np.int64]:
    """Return each arm's place in each round of each block, as the runner orders them."""
    drawn = np.argsort(rng.random((*shape, arms)), axis=-1)
    rounds = np.stack([drawn[..., order_of_round(arms, number)] for number in range(ROUNDS)], axis=2)
    # `rounds` says which arm comes at each place: its inverse says at which place each arm comes.
    return np.argsort(rounds, axis=-1)


def block_logs(medians: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of p50s by trial, block and arm, and of ratios of arm 0 over the others."""
    return np.median(medians, axis=-1), np.median(medians[:, :, :1] - medians[:, :, 1:], axis=-1)
