"""Estimates the ratio of two results of a cell: by stored blocks, else from two sessions.

Every ratio is the first's time over the second's: above 1, the second is faster. Results of two sessions are
compared by Welch's interval (1947) over processes, or tunings where these varied, whose spread each `ci95`
states. The session itself is a further source of variance, which no result of one session shows: it is that
which the noise series of the device found, and where there is none nothing can be said of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent.wire.measurement import Ratio
from orchestrator.results.comparable import Comparable, Times
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.speedups import counted_times, half_of, stored_ratio, was_measured_with
from runtime.common import student
from runtime.common.statistics import MIN_UNITS, freedom_of, quantile_for

Variance: TypeAlias = tuple[float, float]
"""Of the logarithm of a median, with its degrees of freedom."""

NO_INTERVAL = "no interval: a run has fewer than three processes"
NO_SESSIONS = (
    "unpaired, and how much sessions differ there is not known (farm devices noise): "
    "farm compare A B --rerun decides"
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The first's time over the second's with its 95 % interval, and the probability under no difference.

    `allowance`: the share that others took from either side. `stored`: the ratio of the blocks, None for an
    unpaired one. `why_open`: why no verdict can be given, empty where the interval decides.
    """

    ratio: float
    ci95: tuple[float, float] | None
    p: float | None
    allowance: float = 0.0
    stored: Ratio | None = None
    why_open: str = ""

    @property
    def blocks(self) -> int:
        """The number of blocks; 0 for an unpaired ratio."""
        return 0 if self.stored is None else self.stored.blocks


def estimate(first: Comparable | None, second: Comparable | None) -> Estimate | None:
    """Estimate the ratio of two results; None if one of them has no median that counts."""
    if first is None or second is None:
        return None
    before, after = counted_times(first), counted_times(second)
    if before is None or after is None or not before.p50 or not after.p50:
        return None
    for cell, baseline, power in ((second, first, 1), (first, second, -1)):
        ratio = stored_ratio(cell)
        if ratio is not None and was_measured_with(ratio, baseline):
            return by_blocks(ratio, power)
    allowance = _allowance(first) + _allowance(second)
    log = math.log(before.p50 / after.p50)
    found = _variance(first, before), _variance(second, after)
    of_times = [one for one in found if one is not None]
    if len(of_times) < len(found):
        return Estimate(math.exp(log), None, None, allowance, why_open=NO_INTERVAL)
    if first.noise is None or second.noise is None:
        return Estimate(math.exp(log), None, None, allowance, why_open=NO_SESSIONS)
    return unpaired(log, of_times, (first.noise, second.noise), allowance)


def by_blocks(ratio: Ratio, power: int = 1) -> Estimate:
    """Convert a stored ratio to an estimate; `power` -1 if the baseline is the second of the two."""
    half = half_of(ratio.ci95)
    if ratio.ci95 is None or half is None:
        return Estimate(ratio.median**power, None, None, ratio.allowance, ratio)
    low, high = sorted(end**power for end in ratio.ci95)
    units = ratio.tunings if ratio.tunings > 1 else ratio.blocks
    if ratio.spread is None:
        # Of an older agent, whose intervals were Student's however many blocks there were.
        freedom = units - 1
        error = half / student.quantile(freedom)
    else:
        freedom = freedom_of(units)
        error = ratio.spread / math.sqrt(units)
    p = _probability(math.log(ratio.median), ratio.allowance, error, freedom)
    return Estimate(ratio.median**power, (low, high), p, ratio.allowance, ratio)


def unpaired(
    log: float, of_times: Sequence[Variance], noises: tuple[DeviceNoise, DeviceNoise], allowance: float = 0.0
) -> Estimate:
    """Estimate over two sessions, from the `log` of their ratio and the variances of medians and sessions."""
    parts = [*of_times, *_of_sessions(*noises)]
    total = math.fsum(variance for variance, _ in parts)
    ratio = math.exp(log)
    if total <= 0.0:
        return Estimate(ratio, (ratio, ratio), 0.0 if log else 1.0, allowance)
    freedom = total**2 / math.fsum(variance**2 / freedom for variance, freedom in parts)
    error = math.sqrt(total)
    half = student.quantile(freedom) * error
    interval = math.exp(log - half), math.exp(log + half)
    return Estimate(ratio, interval, _probability(log, allowance, error, freedom), allowance)


def mean_estimate(estimates: Iterable[Estimate]) -> Estimate | None:
    """Return the geometric mean over the cells; its interval is over cells, each of which weighs the same."""
    logs = [math.log(one.ratio) for one in estimates]
    if not logs:
        return None
    centre = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return Estimate(math.exp(centre), None, None)
    variance = math.fsum((value - centre) ** 2 for value in logs) / (len(logs) - 1) / len(logs)
    half = student.quantile(len(logs) - 1) * math.sqrt(variance)
    return Estimate(math.exp(centre), (math.exp(centre - half), math.exp(centre + half)), None)


def _of_sessions(first: DeviceNoise, second: DeviceNoise) -> list[Variance]:
    """Return the variances that two sessions add; on one device both come from the same series, and no more
    freely.
    """
    one, two = (math.log1p(noise.session_sd) ** 2 for noise in (first, second))
    if first == second:
        return [(one + two, first.sessions - 1)]
    return [(one, first.sessions - 1), (two, second.sessions - 1)]


def _variance(cell: Comparable, times: Times) -> Variance | None:
    """Return the variance of the mean log median, from the interval that states it."""
    if cell.measurement is None:
        return None
    half, varied = half_of(times.ci95), cell.measurement.variation
    quality, processes = cell.measurement.quality, cell.measurement.settings.get("processes", "")
    units = int(processes) if processes.isdecimal() else 0
    if quality is not None and quality.blocks:
        units = quality.blocks
    if varied is not None and varied.level == "tuning":
        units = varied.tunings
    if half is None or units < MIN_UNITS:
        return None
    return (half / quantile_for(units)) ** 2, freedom_of(units)


def _allowance(cell: Comparable) -> float:
    quality = None if cell.measurement is None else cell.measurement.quality
    return 0.0 if quality is None else quality.allowance


def _probability(log: float, allowance: float, error: float, freedom: float) -> float:
    """Return the probability of such a difference between equal things, after others' share, the
    allowance.
    """
    beyond = max(0.0, abs(log) - allowance)
    if error <= 0.0:
        return 0.0 if beyond else 1.0
    return student.two_sided(beyond / error, freedom)
