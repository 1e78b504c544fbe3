"""Tails of a cell: estimates of high percentiles that are not too low.

A tail is a quantile of the equal-weight mixture of the processes' distributions: each process weighs the
same, however many samples it has. (A mean of the processes' own percentiles would hide that one process of
ten is twice as slow: a tenth of all calls is.) The sample at that rank is too low as often as not, so that a
higher one is taken, as MLPerf Inference's LoadGen does ("early stopping"): the lowest order statistic that,
with a confidence of 99 %, is no lower than the percentile of the calls of these processes.

Neighbouring samples resemble each other, as the machine's state comes in waves, so that n of them are worth
fewer than n independent ones. Means over batches that are long beside the waves hardly resemble each other
any more: their spread is the honest one (batch means; Law and Kelton, "Simulation Modeling and Analysis",
section 9.5). The slices in which a process is timed are such batches, as others run between them.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, variance
from typing import Final

import numpy as np

FEWEST: Final = 3
"""Batches below which their spread says nothing."""

_MOST: Final = 20
"""Batches of samples that were timed in one go. Chosen as in the literature: more are shorter than the waves,
fewer give a vague spread."""

_SHORTEST: Final = 5
"""Samples of a batch at least, as of a slice: the median of fewer is nearly a single sample."""


def batches(samples: Sequence[int], slices: Sequence[int] = ()) -> list[Sequence[int]]:
    """Return the samples in the slices that they were timed in, by their lengths, else in equal parts."""
    count = max(1, min(_MOST, len(samples) // _SHORTEST))
    ends = accumulate(slices, initial=0) if slices else (len(samples) * i // count for i in range(count + 1))
    return [part for begin, end in pairwise(ends) if (part := samples[begin:end])]


def design_effect(processes: Sequence[Sequence[Sequence[int]]], above: float) -> float:
    """Return how many samples stand for an independent one, in the share of them that exceeds a value.

    It is the variance of that share over the batches of a process, as a multiple of what independent samples
    have, each on average over the processes; 1 at least, and where the batches are too few to tell.
    """
    seen, expected = 0.0, 0.0
    for parts in processes:
        if len(parts) >= FEWEST:
            shares = [sum(sample > above for sample in part) / len(part) for part in parts]
            share = fmean(shares)
            seen += fmean(map(len, parts)) * variance(shares)
            expected += share * (1.0 - share)
    return max(1.0, seen / expected) if expected > 0.0 else 1.0


CONFIDENCE: Final = 0.99
"""Confidence with which a tail is not too low, as LoadGen has it. A higher one needs more samples: those of
`samples.FLOORS` follow from it."""


def mixture_quantile(processes: Sequence[Sequence[int]], q: float) -> float:
    """Return the smallest sample at which the equal-weight mixture's distribution reaches `q`.

    For a single process it is its nearest rank. Raises `ValueError` for no samples.
    """
    if not processes or not all(len(samples) for samples in processes):
        raise ValueError("a quantile of no samples")
    values = np.concatenate([np.asarray(samples, np.int64) for samples in processes])
    weights = np.concatenate([np.full(len(s), 1.0 / (len(s) * len(processes))) for s in processes])
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) >= q - 1e-9  # the sum of many shares of one is not exactly one
    return float(values[order][int(np.argmax(reached)) if reached.any() else -1])


def independent_samples(processes: Sequence[Sequence[Sequence[int]]], q: float) -> int:
    """Return how many independent samples those of several processes, each in its batches, are worth.

    It counts those beyond the quantile, which come in bursts where the machine's state does. Processes with
    fewer samples than others count for less, as each weighs the same.
    """
    joined = [[sample for part in parts for sample in part] for parts in processes]
    at = mixture_quantile(joined, q)
    weighed = len(joined) ** 2 / math.fsum(1.0 / len(samples) for samples in joined)
    # What differs between processes is for the interval over them to say.
    return math.floor(weighed / design_effect(processes, at) + 1e-9)


def conservative_share(count: int, q: float) -> float | None:
    """Return the share of `count` independent samples up to the one that bounds quantile `q` from above.

    With t the largest number for which P[Bin(count, 1 - q) <= t] <= 1 - `CONFIDENCE`, the t - 1 largest
    samples are left out, and the largest of the rest is the bound; None where t is 0.
    """
    # t lies below the mean, at which the distribution function is far above 1 - `CONFIDENCE`.
    most = min(count, math.ceil((1.0 - q) * count)) + 1
    k = np.arange(most)
    # log P[X = k + 1] - log P[X = k]; the sum begins at P[X = 0] = q^count.
    steps = np.log((count - k) / (k + 1.0) * (1.0 - q) / q, where=k < count, out=np.full(most, -np.inf))
    logs = count * math.log(q) + np.concatenate([[0.0], np.cumsum(steps)])
    t = int(np.searchsorted(np.cumsum(np.exp(logs)), 1.0 - CONFIDENCE, side="right")) - 1
    return None if t < 1 else (count - t + 1) / count
