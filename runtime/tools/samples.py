"""Latency statistics: the one definition of a percentile, its sample floors and its intervals.

Everything a result says about time is defined here (and described in docs/measuring.md):

* A percentile of one process is the nearest rank of its samples (`percentile`): no interpolation.
* A percentile of a cell is the geometric mean, over its processes, of the processes' percentiles. So
  p50 <= p90 <= p99 always, p50 is the centre of `ci95`, and one disturbed process weighs as one process.
* `ci95` of p50 is a t interval over the logarithms of the process medians: iterations inside one process
  are not independent, so they are never pooled for an interval. Below three processes there is none.
* A percentile needs a minimum of samples in the cell (`FLOORS`); below it the value is None, with the reason.
* `mean` is the arithmetic mean over processes of the processes' arithmetic means.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Literal

PERCENTILES: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
FLOORS: dict[str, int] = {"p50": 11, "p90": 64, "p99": 662}
"""Smallest sample counts: MLPerf Inference's early stopping with confidence 0.99 and no excess allowed."""

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
    """What one measuring process timed, in ns; `invoke_ns` in the order of measurement."""

    cache: Literal["cold", "warm"]
    init_ns: int
    first_ns: int
    invoke_ns: Sequence[int]


@dataclass(frozen=True, slots=True)
class CellLatency:
    """Summary of a cell in ms. `missing` says, for every field that is None, why."""

    init: float | None
    init_warm: float | None
    first: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    mean: float | None
    ci95: tuple[float, float] | None
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
    total = sum(len(samples) for samples in measured)
    quantiles = {name: _cell_percentile(measured, total, name, missing) for name in PERCENTILES}
    cold = [p.init_ns for p in processes if p.cache == "cold"]
    warm = [p.init_ns for p in processes if p.cache == "warm"]
    return CellLatency(
        init=_median_ms("init", cold, missing, "no process ran with fresh caches"),
        init_warm=_median_ms("init_warm", warm, missing, "no process ran with filled caches"),
        first=_median_ms("first", [p.first_ns for p in processes], missing, "no process ran"),
        p50=quantiles["p50"],
        p90=quantiles["p90"],
        p99=quantiles["p99"],
        mean=_mean_ms(measured, missing),
        ci95=_interval_ms(measured, total, missing),
        missing=missing,
    )


def _cell_percentile(
    measured: Sequence[Sequence[int]], total: int, name: str, missing: dict[str, str]
) -> float | None:
    if total < FLOORS[name]:
        missing[name] = f"{total} samples; {name} needs {FLOORS[name]}"
        return None
    return geometric_mean([percentile(samples, PERCENTILES[name]) for samples in measured]) / 1e6


def _interval_ms(
    measured: Sequence[Sequence[int]], total: int, missing: dict[str, str]
) -> tuple[float, float] | None:
    if total < FLOORS["p50"]:
        missing["ci95"] = f"{total} samples; an interval of p50 needs {FLOORS['p50']}"
        return None
    interval = interval_of_medians([percentile(samples, 0.5) / 1e6 for samples in measured])
    if interval is None:
        missing["ci95"] = (
            f"{len(measured)} process{'' if len(measured) == 1 else 'es'}; "
            f"an interval needs {MIN_PROCESSES_FOR_INTERVAL}"
        )
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
