"""Latency statistics: the one definition of a percentile, its sample floors and its intervals.

Everything a result says about time is defined here (and described in docs/measuring.md):

* A percentile of one process is the nearest rank of its samples (`percentile`): no interpolation.
* p50 of a cell is the geometric mean, over its processes, of their medians: the centre of `ci95`.
* A tail (p90, p95, p99) is the quantile of the equal-weight mixture of the processes (`tails.py`), and at
  least p50.
* `ci95` of p50 is a t interval over the logarithms of the process medians: iterations inside one process
  are not independent, so they are never pooled for an interval. Below three processes there is none.
* Where the processes are spread over several tunings, p50 is the geometric mean over these of that over their
  processes, and `ci95` is over the tunings: processes of one tuning share its choices.
* A percentile needs a minimum of samples (`FLOORS`): a tail in every process, p50 in the cell, as the
  spread of medians shows what they are worth. Below it the value is None, with the reason.
* `mean` is the arithmetic mean over processes of the processes' arithmetic means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Literal

from runtime.tools.tails import MIN_PROCESSES_FOR_TAIL_INTERVAL, mixture_quantile, tail_interval

TAILS: dict[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
FLOORS: dict[str, int] = {"p50": 11, "p90": 64, "p95": 130, "p99": 662}
"""Smallest sample counts, of the cell for p50 and of each process for a tail: MLPerf Inference's early
stopping with confidence 0.99 and no excess allowed."""

MIN_PROCESSES_FOR_INTERVAL = 3
"""Processes below which `ci95` is None. Chosen: from two, t has one degree of freedom, and the interval is
wider than any figure."""

_T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930,
)  # fmt: skip
"""97.5 % quantiles of Student's t for 1..19 degrees of freedom (a cell has at most 20 processes)."""


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """What one measuring process timed, in ns; `invoke_ns` in the order of measurement.

    Processes of one `tuning` share what a delegate chose by timing. `p50_ns`: the median of the medians of
    its slices; None of a process that was timed in one loop.
    """

    cache: Literal["cold", "warm"]
    init_ns: int
    first_ns: int
    invoke_ns: Sequence[int]
    tuning: int = 0
    p50_ns: float | None = None


@dataclass(frozen=True, slots=True)
class CellLatency:
    """Summary of a cell in ms. `missing` says, for every field that is None, why."""

    init: float | None
    init_warm: float | None
    first: float | None
    first_warm: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float | None
    ci95: tuple[float, float] | None
    p90_ci95: tuple[float, float] | None
    p99_ci95: tuple[float, float] | None
    missing: dict[str, str]


def percentile(samples: Sequence[float], q: float) -> float:
    """Return the smallest sample that at least the share `q` of the samples does not exceed: nearest rank.

    It is the element of rank ceil(q * n) of the sorted samples, q in (0, 1]; known as `inverted_cdf`. Raises
    `ValueError` for no samples or q out of range.
    """
    if not samples:
        raise ValueError("a percentile of no samples")
    if not 0.0 < q <= 1.0:
        raise ValueError(f"q must lie in (0, 1], got {q!r}")
    return sorted(samples)[_rank(q, len(samples)) - 1]


def _rank(q: float, n: int) -> int:
    """Return the 1-based rank ceil(q * n), free of the rounding error of the product (0.07 * 100 > 7)."""
    return max(1, math.ceil(round(q * n, 9)))


def median_interval(n: int, q: float = 0.5, confidence: float = 0.95) -> tuple[int | None, int | None]:
    """Return 1-based ranks (l, u) of the order statistics that enclose quantile `q` of `n` samples.

    l is the largest i with P[Bin(n, q) <= i-1] <= a/2, u the smallest i with P[Bin(n, q) <= i-1] >= 1-a/2;
    None where the interval is unbounded on that side.
    """
    tail = (1.0 - confidence) / 2.0
    lower: int | None = None
    cumulative = 0.0
    for i in range(1, n + 1):
        cumulative += math.exp(_log_binomial(i - 1, n, q))
        if cumulative <= tail:
            lower = i
        if cumulative >= 1.0 - tail:
            return lower, i
    return lower, None


def _log_binomial(k: int, n: int, q: float) -> float:
    """Return the natural logarithm of P[Bin(n, q) = k]; factorials of many samples overflow by themselves."""
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choose + k * math.log(q) + (n - k) * math.log1p(-q)


def geometric_mean(values: Sequence[float]) -> float:
    """Return exp(mean(ln v)); zero if any value is zero. Raises `ValueError` for no values."""
    if not values:
        raise ValueError("a geometric mean of no values")
    if min(values) <= 0.0:
        return 0.0
    return math.exp(math.fsum(math.log(v) for v in values) / len(values))


def interval_of_medians(medians: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval exp(mean(ln m) +- t * s / sqrt(P)).

    It is None below `MIN_PROCESSES_FOR_INTERVAL` processes or for a zero median.
    """
    count = len(medians)
    if count < MIN_PROCESSES_FOR_INTERVAL or min(medians) <= 0.0:
        return None
    logs = [math.log(m) for m in medians]
    centre = math.fsum(logs) / count
    half = _T_975[count - 2] * stdev(logs) / math.sqrt(count)
    return math.exp(centre - half), math.exp(centre + half)


def summarise(processes: Sequence[ProcessTimes]) -> CellLatency:
    """Summarise a cell from all its processes, as the module's text defines; ns in, ms out."""
    missing: dict[str, str] = {}
    measured = [p.invoke_ns for p in processes if p.invoke_ns]
    fewest = min(map(len, measured), default=0)
    cold = [p.init_ns for p in processes if p.cache == "cold"]
    warm = [p.init_ns for p in processes if p.cache == "warm"]
    cold_first = [p.first_ns for p in processes if p.cache == "cold"]
    warm_first = [p.first_ns for p in processes if p.cache == "warm"]
    units, level = _units(processes)
    p50 = _median_of_cell(measured, units, missing)
    tails = {name: _tail(measured, fewest, name, p50, missing) for name in TAILS}
    return CellLatency(
        init=_median_ms("init", cold, missing, "no process ran with fresh caches"),
        init_warm=_median_ms("init_warm", warm, missing, "no process ran with filled caches"),
        first=_median_ms("first", cold_first, missing, "no process ran with fresh caches"),
        first_warm=_median_ms("first_warm", warm_first, missing, "no process ran with filled caches"),
        p50=p50,
        p90=tails["p90"],
        p95=tails["p95"],
        p99=tails["p99"],
        mean=_mean_ms(measured, missing),
        ci95=_interval_ms(measured, units, level, missing),
        p90_ci95=_tail_interval_ms(measured, fewest, "p90", missing),
        p99_ci95=_tail_interval_ms(measured, fewest, "p99", missing),
        missing=missing,
    )


def _too_few(name: str, count: int, of: str) -> str | None:
    """Return why a percentile is not carried by its samples, or None."""
    if count >= FLOORS[name]:
        return None
    return f"{count} samples{of}; {name} needs {FLOORS[name]}"


def _units(processes: Sequence[ProcessTimes]) -> tuple[list[float], str]:
    """Return the medians in ns over which p50 and its interval are taken, and of what they are."""
    groups: dict[int, list[float]] = {}
    for process in processes:
        if process.invoke_ns:
            groups.setdefault(process.tuning, []).append(process.p50_ns or percentile(process.invoke_ns, 0.5))
    if len(groups) > 1:
        return [geometric_mean(medians) for medians in groups.values()], "tuning"
    return [median for medians in groups.values() for median in medians], "process"


def _median_of_cell(
    measured: Sequence[Sequence[int]], units: Sequence[float], missing: dict[str, str]
) -> float | None:
    why = _too_few("p50", sum(map(len, measured)), "")
    if why is not None:
        missing["p50"] = why
        return None
    return geometric_mean(units) / 1e6


def _tail(
    measured: Sequence[Sequence[int]], fewest: int, name: str, p50: float | None, missing: dict[str, str]
) -> float | None:
    why = _too_few(name, fewest, " of a process")
    if why is not None:
        missing[name] = why
        return None
    # The mean of medians can exceed a low tail of the mixture, where a single process is slower by far.
    return max(mixture_quantile(measured, TAILS[name]) / 1e6, p50 or 0.0)


def _tail_interval_ms(
    measured: Sequence[Sequence[int]], fewest: int, name: str, missing: dict[str, str]
) -> tuple[float, float] | None:
    why = _too_few(name, fewest, " of a process")
    interval = None if why is not None else tail_interval(measured, TAILS[name])
    if interval is None:
        missing[f"{name}_ci95"] = why or (
            f"{len(measured)} process{'' if len(measured) == 1 else 'es'}; "
            f"an interval of a tail needs {MIN_PROCESSES_FOR_TAIL_INTERVAL}"
        )
        return None
    return interval[0] / 1e6, interval[1] / 1e6


def _interval_ms(
    measured: Sequence[Sequence[int]], units: Sequence[float], level: str, missing: dict[str, str]
) -> tuple[float, float] | None:
    why = _too_few("p50", sum(map(len, measured)), "")
    if why is not None:
        missing["ci95"] = why
        return None
    interval = interval_of_medians([median_ns / 1e6 for median_ns in units])
    if interval is None:
        plural = {"process": "es", "tuning": "s"}[level] if len(units) != 1 else ""
        missing["ci95"] = f"{len(units)} {level}{plural}; an interval needs {MIN_PROCESSES_FOR_INTERVAL}"
    return interval


def _mean_ms(measured: Sequence[Sequence[int]], missing: dict[str, str]) -> float | None:
    if not measured:
        missing["mean"] = "no samples"
        return None
    return math.fsum(math.fsum(s) / len(s) for s in measured) / len(measured) / 1e6


def _median_ms(name: str, values: Sequence[int], missing: dict[str, str], why: str) -> float | None:
    if not values:
        missing[name] = why
        return None
    return median(values) / 1e6
