"""Tails of a cell: estimates of high percentiles that are not too low.

A tail is a quantile of the equal-weight mixture of the processes' distributions: each process weighs the
same, however many samples it has. (A mean of the processes' own percentiles would hide that one process of
ten is twice as slow: a tenth of all calls is.) The sample at that rank is too low as often as not, so that a
higher one is taken, as MLPerf Inference's LoadGen does ("early stopping"): the lowest order statistic that,
with a confidence of 99 %, is no lower than the percentile of the calls of these processes.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from runtime.measure.samples.batches import design_effect

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
    most = min(count, math.ceil((1.0 - q) * count)) + 1
    k = np.arange(most)
    steps = np.log((count - k) / (k + 1.0) * (1.0 - q) / q, where=k < count, out=np.full(most, -np.inf))
    logs = count * math.log(q) + np.concatenate([[0.0], np.cumsum(steps)])
    t = int(np.searchsorted(np.cumsum(np.exp(logs)), 1.0 - CONFIDENCE, side="right")) - 1
    return None if t < 1 else (count - t + 1) / count
