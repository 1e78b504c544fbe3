"""Estimates the variation of a median by what is repeated (rounds, blocks, tunings), and what to repeat more.

Nested analysis of variance of the logarithms of medians, as Kalibera and Jones, "Rigorous Benchmarking in
Reasonable Time" (2013), section 6, with their rule for the number of repetitions of each level. What the
samples of one process add is seen in its batches, the slices of its rounds: neighbouring samples are alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final, Literal

from runtime.common.statistics import estimate, units, units_for
from runtime.measure.samples.summary import percentile, process_median
from runtime.measure.samples.tails import FEWEST, batches

TARGET: Final = 0.01
"""Half width, as a share, of the interval for which a number of repetitions is named. Chosen as the smallest
difference that a comparison calls one (`runtime.common.verdict.DIFFERENT`)."""

_MOST: Final = 1_000_000
"""The largest number of repetitions that is named; a level that hardly varies would ask for an absurd one."""

OF_MEDIAN: Final = math.pi / 2.0
"""Variance of the median over that of the mean, of many normal values."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A timed process, its block's one of this arm: its samples in ns, what it cost besides, in seconds, and
    how many of the samples each of its slices has.
    """

    invoke_ns: Sequence[int]
    besides_s: float
    slices: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Variation:
    """The contribution of each level to the spread of medians, its cost, and how often to repeat it.

    `..._sd` are standard deviations as a share, None for a level that was not repeated; that of samples is
    what batches of them say, as one of as many independent ones. `..._s` are the seconds of one more without
    what is repeated within it. `samples_advised` of a process, the same as `rounds_advised` of a block where
    it was timed by slices, and `processes_advised` of a tuning, a process for each block: None where the
    level above adds nothing that was seen, so that only time bounds them. `units_advised`: of the level of
    the interval, for `TARGET`.
    """

    level: Literal["process", "tuning"]
    tunings: int
    processes: int
    sample_sd: float | None
    process_sd: float | None
    tuning_sd: float | None
    sample_s: float
    process_s: float | None
    tuning_s: float | None
    samples_advised: int | None
    rounds_advised: int | None
    processes_advised: int | None
    units_advised: int | None


def variation_of(tunings: Sequence[Sequence[Timed]], cold_s: Sequence[float]) -> Variation | None:
    """Return the variation of timed processes, grouped by their tuning; None for fewer than two of them.

    `cold_s`: how long the process ran that began each tuning.
    """
    groups = [[p for p in group if p.invoke_ns and min(p.invoke_ns) > 0] for group in tunings]
    groups = [group for group in groups if group]
    every = [process for group in groups for process in group]
    if len(every) < 2:
        return None
    medians = [[math.log(process_median(p.invoke_ns, p.slices)) for p in group] for group in groups]
    own = [_variance_of_median(p) for p in every]
    known = [value for value in own if value is not None]
    within = fmean(known) if len(known) == len(own) else None
    samples = fmean(len(p.invoke_ns) for p in every)
    between, over = nested(medians)
    # Medians also scatter by the samples of their own process, which is no doing of the processes.
    process = None if between is None else max(0.0, between - (within or 0.0))
    sample = None if within is None else within * samples
    sample_s = fmean(math.fsum(p.invoke_ns) / len(p.invoke_ns) / 1e9 for p in every)
    process_s = fmean(p.besides_s for p in every)
    tuning_s = fmean(cold_s) if cold_s else 0.0
    advised = _advised(process_s, sample_s, sample, process)
    slices = [length for p in every for length in p.slices]
    tuning_of = [number for number, group in enumerate(groups) for _ in group]
    spread = estimate(units([log for group in medians for log in group], tuning_of)).spread
    return Variation(
        level="tuning" if len(groups) > 1 else "process",
        tunings=len(groups),
        processes=len(every),
        sample_sd=_root(sample),
        process_sd=_root(process),
        tuning_sd=_root(over),
        sample_s=sample_s,
        process_s=process_s if process_s > 0.0 else None,
        tuning_s=tuning_s if tuning_s > 0.0 else None,
        samples_advised=advised,
        rounds_advised=None if advised is None or not slices else math.ceil(advised / fmean(slices)),
        processes_advised=_advised(tuning_s, process_s, process, over),
        units_advised=None if not spread else min(_MOST, units_for(spread, TARGET)),
    )


def _variance_of_median(process: Timed) -> float | None:
    """Return the variance of the logarithm of a process's p50, by the spread of the medians of its batches.

    None for a p50 of fewer batches than tell a spread.
    """
    parts = batches(process.invoke_ns, process.slices)
    if len(parts) < FEWEST:
        return None
    spread = variance([math.log(percentile(part, 0.5)) for part in parts]) / len(parts)
    # Of slices, p50 is the median; of other samples it varies as the mean of their batches' medians does.
    return spread * OF_MEDIAN if process.slices else spread


def nested(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the variance within groups, such as processes of a tuning, and what the groups add to it.

    Either is None where it was not repeated. Groups may differ in size (Searle, "Linear Models", 1971, 10.4).
    """
    count, total = len(groups), sum(map(len, groups))
    means = [fmean(group) for group in groups]
    inner = math.fsum((x - mean) ** 2 for group, mean in zip(groups, means, strict=True) for x in group)
    between = inner / (total - count) if total > count else None
    if count < 2:
        return between, None
    grand = math.fsum(x for group in groups for x in group) / total
    outer = math.fsum(len(g) * (mean - grand) ** 2 for g, mean in zip(groups, means, strict=True))
    # The mean size of a group, corrected for groups that differ in size.
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (count - 1)
    return between, max(0.0, (outer / (count - 1) - (between or 0.0)) / size)


def _advised(upper_s: float, lower_s: float, lower: float | None, upper: float | None) -> int | None:
    """Return how often to repeat a level within the one above: sqrt of the ratios of cost and of variance."""
    if not lower or not upper or upper_s <= 0.0 or lower_s <= 0.0:
        return None
    return min(_MOST, math.ceil(math.sqrt(upper_s / lower_s * lower / upper)))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
