"""When a warm-up has reached the steady state, and when a timed loop has enough samples.

The steady state: windows of ten runs whose medians stay the same, as Georges et al. (2007) look for it.
Enough: the interval of the median is narrow, or further samples would not make the estimate of the noise
another one (NVBench's rule); time and counts bound both.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Stop: TypeAlias = Literal["converged", "noise_stable", "time", "count"]
"""Why a timed loop ended: its median is known well enough, its noise does not change any more, or the plan's
time or count was reached."""

WINDOW: Final = 10
"""Runs of a window of the warm-up. Chosen: enough for a median, few enough to see the end of a fast start."""

SAME: Final = 0.02
"""Largest share by which the medians of neighbouring windows differ in the steady state. Chosen above what
noise does to the median of ten runs; larger would end a slow approach too early."""

CALM: Final = 0.05
"""Largest spread of a window in the steady state, as a share: its quartiles, as a standard deviation."""

NARROW: Final = 0.01
"""Half width of the interval of the median, as a share, at which a loop has converged. Chosen: processes
differ by about as much, so that a narrower one would not narrow the interval of the cell."""

FEWEST: Final = 30
"""Samples below which nothing is said of the median's interval: its ranks are those of a normal
distribution."""

GROWTH: Final = 1.1
"""Factor between the counts of samples at which a loop looks whether it may end. Closer to one looks more
often, each time pausing the loop for a sort of its samples."""

_NOISE_LOOKS: Final = 12
"""Looks over which the estimate of the noise has to stay the same: three times the samples of the first one.
Fewer share most of their samples, and then always agree."""

_NOISE_STABLE: Final = 0.05
"""Largest relative standard deviation of these estimates, as NVBench has it."""

_Z_975: Final = 1.96
"""Standard deviations of a normal distribution between its mean and its 97.5 % quantile."""

_QUARTILES: Final = 1.349
"""Distance of the quartiles of a normal distribution in standard deviations."""


def is_steady(samples: NDArray[np.int64]) -> bool:
    """Return whether the last three windows of a warm-up, in ns and in order, show a steady state."""
    if len(samples) < 3 * WINDOW:
        return False
    windows = samples[-3 * WINDOW :].reshape(3, WINDOW).astype(np.float64)
    first, second, third = np.median(windows, axis=1)
    if min(first, second) <= 0.0 or third <= 0.0:
        return False
    low, high = np.quantile(windows[-1], (0.25, 0.75))
    is_calm = (high - low) / _QUARTILES < CALM * third
    return bool(is_calm and abs(second / first - 1.0) < SAME and abs(third / second - 1.0) < SAME)


class Precision:
    """Looks at a growing list of samples, and says once they are enough."""

    def __init__(self) -> None:
        self._noise: list[float] = []

    def look(self, samples: NDArray[np.int64]) -> Stop | None:
        """Return why these samples, in ns, are enough; None where they are not."""
        count = len(samples)
        if count < FEWEST:
            return None
        ranks = _ranks(count)
        low, middle, high = np.partition(samples, ranks)[list(ranks)].astype(np.float64).tolist()
        if middle <= 0.0:
            return None
        half = (high - low) / (2.0 * middle)
        if half < NARROW:
            return "converged"
        self._noise.append(half * math.sqrt(count))
        last = np.array(self._noise[-_NOISE_LOOKS:])
        is_stable = len(last) == _NOISE_LOOKS and last.std() < _NOISE_STABLE * last.mean()
        return "noise_stable" if is_stable else None


def _ranks(count: int) -> tuple[int, int, int]:
    """Return the places of the ends of the median's 95 % interval, and of the median between them."""
    middle, reach = (count - 1) / 2.0, _Z_975 * math.sqrt(count) / 2.0
    return max(0, math.floor(middle - reach)), count // 2, min(count - 1, math.ceil(middle + reach))
