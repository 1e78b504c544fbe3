"""Detects drift: a change of level from a process's first slices to its last.

A fixed bound on the difference of two medians alarms often where samples are noisy, and misses a small drift
of many samples. Here the change from the first third to the last is called a drift where it is both larger
than chance allows and large enough to matter. `benchmarks/statistics.py` measures how often it errs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_SAMPLES = 210
"""Fewest samples that are judged: ten in each block. With fewer, waves of neighbouring samples alarm falsely
in more than one process of twenty."""

FEW_SAMPLES = 60
"""Fewest samples of which a step is seen. With fewer, waves of neighbouring samples alarm falsely in more
than one process of twenty."""

LEAST_STEP = 0.1
"""Smallest change of few samples that is called drift. Chosen: a hot device lowers its clocks by more than
that; smaller, and waves of noisy samples look like steps."""

LEAST_CHANGE = 0.01
"""Smallest change, as a share, that is called drift. Chosen: the interval of a median is rarely narrower, so
less would disturb no figure; smaller, and every long process drifts."""

_THIRDS, _BLOCKS = 3, 7
"""Parts of the samples, and blocks of each part. Means of blocks are nearly independent where samples
resemble their neighbours; seven of them leave 18 degrees of freedom for the noise within the thirds."""

_TRIM = 0.1
"""Share of a block's samples that is left out at either end of its mean: single slow calls are no drift."""

_T = 2.3
"""Standard errors above which a change is more than chance: Student's t for 18 degrees of freedom at 97 %."""

_LAG_BIAS = 0.25
"""What is added to the lag-1 autocorrelation of block means, which seven values about their own mean
underestimate. Chosen by simulation, so that false alarms stay below 5 % for autocorrelations of samples up to
0.8."""

_MAX_LAG = 0.9
"""Largest autocorrelation that is allowed for; a larger one would excuse every change."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The change from the first third to the last, as a share, and whether it is more than noise."""

    change: float
    is_significant: bool

    @property
    def is_alarming(self) -> bool:
        """Whether the change is certain, and large enough to matter."""
        return self.is_significant and abs(self.change) > LEAST_CHANGE


def drift(samples_ns: NDArray[np.int64]) -> Drift | None:
    """Return the drift of samples in the order of measurement, or None where too few show none.

    From `MIN_SAMPLES` on it is a t test on the logarithms of block means; the variance of a third's mean is
    inflated by (1 + r) / (1 - r), r the lag-1 autocorrelation of the blocks within thirds.
    """
    # A call that is too short for the clock has neither a logarithm nor a ratio to others.
    if len(samples_ns) < FEW_SAMPLES or samples_ns.min() <= 0:
        return None
    if len(samples_ns) < MIN_SAMPLES:
        return _step(samples_ns)
    blocks = np.array_split(np.log(samples_ns), _THIRDS * _BLOCKS)
    level = np.array([_trimmed_mean(block) for block in blocks]).reshape(_THIRDS, _BLOCKS)
    means = level.mean(axis=1)
    noise = level - means[:, None]
    power = float((noise**2).sum())
    lag = float((noise[:, 1:] * noise[:, :-1]).sum()) / power if power > 0.0 else 0.0
    resemblance = min(max(lag + _LAG_BIAS, 0.0), _MAX_LAG)
    variance = power / (_THIRDS * (_BLOCKS - 1)) * (1.0 + resemblance) / (1.0 - resemblance)
    change = float(means[-1] - means[0])
    # The difference of two means, each of `_BLOCKS` blocks, has twice the variance of one of them.
    return Drift(float(np.expm1(change)), abs(change) > _T * float(np.sqrt(2.0 * variance / _BLOCKS)))


def _step(samples_ns: NDArray[np.int64]) -> Drift | None:
    """Return the change of few samples where it is large and the first and the last third do not overlap.

    A tenth of either third is left out at each end.
    """
    third = len(samples_ns) // _THIRDS
    cut = int(_TRIM * third)
    ends = samples_ns[:third], samples_ns[len(samples_ns) - third :]
    first, last = (np.sort(end)[cut : third - cut] for end in ends)
    change = float(np.median(last) / np.median(first)) - 1.0
    apart = bool(last[0] > first[-1] or last[-1] < first[0])
    return Drift(change, is_significant=True) if apart and abs(change) >= LEAST_STEP else None


def _trimmed_mean(values: NDArray[np.float64]) -> float:
    cut = int(_TRIM * len(values))
    return float(np.sort(values)[cut : len(values) - cut].mean())
