"""How much a median varies by what is repeated (samples, processes, tunings), and where to repeat more.

Nested analysis of variance of the logarithms of medians, as Kalibera and Jones, "Rigorous Benchmarking in
Reasonable Time" (2013), section 6, with their rule for the number of repetitions of each level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal

from runtime.tools.samples import median_interval, percentile

_Z_975: Final = 1.96
"""Standard deviations of a normal distribution between its mean and its 97.5 % quantile."""

TARGET: Final = 0.01
"""Half width, as a share, of the interval for which a number of repetitions is named. Chosen: ratios within 2
% are called the same, and two such intervals then decide between them."""

_MOST: Final = 1_000_000
"""The largest number of repetitions that is named; a level that hardly varies would ask for an absurd one."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A timed process: its samples in ns, and what it cost besides, in seconds."""

    invoke_ns: Sequence[int]
    besides_s: float


@dataclass(frozen=True, slots=True)
class Variation:
    """What each level adds to the spread of medians, what it costs, and how often to repeat it.

    `..._sd` are standard deviations as a share, None for a level that was not repeated; that of samples is
    what a median's own interval says about them. `..._s` are the seconds of one more without what is repeated
    within it. `samples_advised` of a process, `processes_advised` of a tuning: None where the level above
    adds nothing that was seen, so that only time bounds them. `units_advised`: of the level of the interval,
    for `TARGET`.
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
    medians = [[math.log(percentile(p.invoke_ns, 0.5)) for p in group] for group in groups]
    own = [_variance_of_median(p.invoke_ns) for p in every]
    known = [value for value in own if value is not None]
    within = fmean(known) if len(known) == len(own) else None
    samples = fmean(len(p.invoke_ns) for p in every)
    between, over = _nested(medians)
    process = None if between is None else max(0.0, between - (within or 0.0))
    sample = None if within is None else within * samples
    sample_s = fmean(math.fsum(p.invoke_ns) / len(p.invoke_ns) / 1e9 for p in every)
    process_s = fmean(p.besides_s for p in every)
    tuning_s = fmean(cold_s) if cold_s else 0.0
    units = [fmean(group) for group in medians] if len(groups) > 1 else medians[0]
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
        samples_advised=_advised(process_s, sample_s, sample, process),
        processes_advised=_advised(tuning_s, process_s, process, over),
        units_advised=_for_target(units),
    )


def _variance_of_median(invoke_ns: Sequence[int]) -> float | None:
    """Return the variance of the logarithm of a process's median, from its order-statistic interval."""
    low, high = median_interval(len(invoke_ns))
    if low is None or high is None:
        return None
    ordered = sorted(invoke_ns)
    return (math.log(ordered[high - 1] / ordered[low - 1]) / (2.0 * _Z_975)) ** 2


def _nested(groups: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Return the variance between processes of a tuning, and the component that tunings add to it.

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
    size = (total - sum(len(group) ** 2 for group in groups) / total) / (count - 1)
    return between, max(0.0, (outer / (count - 1) - (between or 0.0)) / size)


def _advised(upper_s: float, lower_s: float, lower: float | None, upper: float | None) -> int | None:
    """Return how often to repeat a level within the one above: sqrt of the ratios of cost and of variance."""
    if not lower or not upper or upper_s <= 0.0 or lower_s <= 0.0:
        return None
    return min(_MOST, math.ceil(math.sqrt(upper_s / lower_s * lower / upper)))


def _for_target(units: Sequence[float]) -> int | None:
    """Return how many units an interval of `TARGET` to either side needs."""
    mean = fmean(units)
    variance = math.fsum((x - mean) ** 2 for x in units) / (len(units) - 1)
    # Below some ten, Student's quantile is larger than two, and three are the fewest that give an interval.
    return min(_MOST, 2 + max(1, math.ceil(variance * (_Z_975 / TARGET) ** 2))) if variance > 0.0 else None


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
