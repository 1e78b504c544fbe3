"""Decides when a warm-up has reached the steady state: windows of ten runs whose medians stay the same, as
Georges et al. (2007) do.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW: Final = 10
"""Runs of a window of the warm-up. Chosen: enough for a median, few enough to see the end of a fast start."""

SAME: Final = 0.02
"""Largest share by which the medians of neighbouring windows differ in the steady state. Chosen above what
noise does to the median of ten runs; larger would end a slow approach too early."""

CALM: Final = 0.05
"""Largest spread of a window in the steady state, as a share: its quartiles, as a standard deviation."""

GROWTH: Final = 1.1
"""Factor between the counts of samples at which a loop looks whether it may end. Closer to one looks more
often, each time pausing the loop for a sort of its samples."""

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
