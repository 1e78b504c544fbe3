"""Batches of a process's samples, from which follows how well the samples are known.

Neighbouring samples resemble each other, as the machine's state comes in waves, so that n of them are worth
fewer than n independent ones. Means over batches that are long beside the waves hardly resemble each other
any more: their spread is the honest one (batch means; Law and Kelton, "Simulation Modeling and Analysis",
section 9.5). The slices in which a process is timed are such batches, as others run between them.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, variance
from typing import Final

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
