"""Tails of a cell: high percentiles over several processes, with intervals.

A tail is the quantile of the equal-weight mixture of the processes' distributions: each process weighs the
same, however many samples it has. (A mean of the processes' own percentiles would hide that one process of
ten is twice as slow: a tenth of all calls is.) Its interval is a bootstrap over whole processes, as samples
within one are not independent: the percentile method of Davison and Hinkley, "Bootstrap Methods and their
Application" (1997), section 3.8, on clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MIN_PROCESSES_FOR_TAIL_INTERVAL = 10
"""Processes below which a tail has no interval: resampling fewer gives intervals that are too narrow."""

_RESAMPLES = 2000
"""Bootstrap resamples. The ends of a 95 % interval are then the 50th values from either side."""

_GRID = 4096
"""Most candidate values of a resampled quantile, spread evenly over the ranks of all samples; bounds the work
for millions of samples, at a resolution of 1/4096 of them."""

_SEED = 20_240_229
"""Seed of the bootstrap, fixed so that the same samples always give the same interval."""


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


def tail_interval(processes: Sequence[Sequence[int]], q: float) -> tuple[float, float] | None:
    """Return the 95 % interval of `mixture_quantile`; None for fewer than ten processes."""
    count = len(processes)
    if count < MIN_PROCESSES_FOR_TAIL_INTERVAL:
        return None
    ordered = [np.sort(np.asarray(samples, np.int64)) for samples in processes]
    grid = _grid(np.sort(np.concatenate(ordered)))
    shares = np.stack([np.searchsorted(s, grid, side="right") / len(s) for s in ordered])
    generator = np.random.Generator(np.random.PCG64(_SEED))
    drawn = generator.multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES)
    reached = (drawn @ shares) / count >= q - 1e-9
    found = np.sort(grid[np.where(reached.any(axis=1), reached.argmax(axis=1), len(grid) - 1)])
    outside = int(0.025 * _RESAMPLES)
    return float(found[outside]), float(found[_RESAMPLES - 1 - outside])


def _grid(values: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(values) <= _GRID:
        return values
    # Evenly over the ranks; the last is the maximum, which every quantile reaches.
    return values[np.linspace(0, len(values) - 1, _GRID).round().astype(np.int64)]
