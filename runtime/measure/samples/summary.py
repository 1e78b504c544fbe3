"""Latency statistics: the one definition of a percentile, its sample floors and its intervals.

Everything a result says about time is defined here (and described in docs/measuring.md):

* A percentile of samples is their nearest rank (`percentile`): no interpolation.
* p50 of a process is the median over its slices of their medians (`process_median`).
* p50 of a cell and `ci95` are the centre and the interval of its processes' p50s on logarithms
  (`runtime.common.statistics.estimate`): iterations inside one process are not independent, so they are never
  pooled for an interval. Below three processes there is none.
* Where the processes are spread over several tunings, both are over the tunings: processes of one share its
  choices.
* A tail (p90, p95, p99) is a bound: of the equal-weight mixture of the processes, the order statistic that is
  not below the percentile of their calls with a confidence of 99 % (`tails.py`). It is at least p50. Its
  interval, over the processes' own percentiles as that of p50, says what other processes would give, and
  reaches up to the bound at least.
* A percentile needs a minimum of samples (`FLOORS`): p50 any, a tail independent ones. Below it the value is
  None, with the reason.
* `mean` is the arithmetic mean over processes of the processes' arithmetic means.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from runtime.common.statistics import MIN_UNITS, Estimate, estimate, units
from runtime.measure.samples.tails import batches, conservative_share, independent_samples, mixture_quantile

TAILS: dict[str, float] = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
FLOORS: dict[str, int] = {"p50": 11, "p90": 64, "p95": 130, "p99": 662}
"""Smallest sample counts of a cell, for a tail of independent ones: MLPerf Inference's early stopping with
confidence 0.99 and no excess allowed. For an interval of a tail, every process needs as many."""


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """The times of one measuring process, in ns; `invoke_ns` in the order of measurement.

    Processes of one `tuning` share what a delegate chose by timing. `slices`: how many of the invokes each
    slice has, in their order; empty where they were timed in one go.
    """

    cache: Literal["cold", "warm"]
    init_ns: int
    first_ns: int
    invoke_ns: Sequence[int]
    tuning: int = 0
    slices: Sequence[int] = ()


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
    # Free of the rounding error of the product (0.07 * 100 > 7).
    return sorted(samples)[max(1, math.ceil(round(q * len(samples), 9))) - 1]


def process_median(samples: Sequence[int], slices: Sequence[int] = ()) -> float:
    """Return the p50 of a process: the median over its slices of their medians; without slices its own.

    A slice weighs the same however many samples it has, and one that met a slow state of the machine is one
    of seven. Raises `ValueError` for no samples.
    """
    if not slices:
        return percentile(samples, 0.5)
    return median(percentile(part, 0.5) for part in batches(samples, slices))


def summarise(processes: Sequence[ProcessTimes]) -> CellLatency:
    """Summarise a cell from all its processes, as the module's text defines; ns in, ms out."""
    missing: dict[str, str] = {}
    timed = [p for p in processes if p.invoke_ns]
    cold = [p for p in processes if p.cache == "cold"]
    warm = [p for p in processes if p.cache == "warm"]
    cell = _Cell(timed, missing)
    p50 = cell.p50()
    tails = {name: cell.tail(name, p50) for name in TAILS}
    return CellLatency(
        init=_median_ms("init", [p.init_ns for p in cold], missing, "no process ran with fresh caches"),
        init_warm=_median_ms(
            "init_warm", [p.init_ns for p in warm], missing, "no process ran with filled caches"
        ),
        first=_median_ms("first", [p.first_ns for p in cold], missing, "no process ran with fresh caches"),
        first_warm=_median_ms(
            "first_warm", [p.first_ns for p in warm], missing, "no process ran with filled caches"
        ),
        p50=None if p50 is None else p50.value,
        p90=tails["p90"],
        p95=tails["p95"],
        p99=tails["p99"],
        mean=_mean_ms([p.invoke_ns for p in timed], missing),
        ci95=cell.interval("ci95", p50),
        p90_ci95=cell.tail_interval("p90", tails["p90"]),
        p99_ci95=cell.tail_interval("p99", tails["p99"]),
        missing=missing,
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """The processes of a cell that timed invokes. `missing` is added to."""

    processes: Sequence[ProcessTimes]
    missing: dict[str, str]

    def p50(self) -> Estimate | None:
        """Return the estimate of the median, of logarithms of ms."""
        samples = sum(len(p.invoke_ns) for p in self.processes)
        if samples < FLOORS["p50"]:
            self.missing["p50"] = self.missing["ci95"] = f"{samples} samples; p50 needs {FLOORS['p50']}"
            return None
        return self._over([process_median(p.invoke_ns, p.slices) for p in self.processes])

    def interval(self, name: str, found: Estimate | None) -> tuple[float, float] | None:
        """Return the ends in ms of an estimate's interval."""
        if found is None or found.interval is not None:
            return None if found is None else found.interval
        level = "tunings" if len({p.tuning for p in self.processes}) > 1 else "processes"
        count = found.units
        few = f"{count} {level}" if count != 1 else "1 process"
        self.missing[name] = f"{few}; an interval needs {MIN_UNITS}"
        return None

    def tail(self, name: str, p50: Estimate | None) -> float | None:
        """Return the bound of a tail in ms."""
        q, samples = TAILS[name], [p.invoke_ns for p in self.processes]
        count = sum(map(len, samples))
        parts = [batches(p.invoke_ns, p.slices) for p in self.processes]
        worth = independent_samples(parts, q) if count >= FLOORS[name] else count
        share = conservative_share(worth, q) if worth else None
        if share is None:
            like = "" if worth == count else f", no more than {worth} independent ones"
            self.missing[name] = f"{count} samples{like}; {name} needs {FLOORS[name]}"
            return None
        # The centre of medians can exceed a low tail of the mixture, where a single process is slower by far.
        return max(mixture_quantile(samples, share) / 1e6, 0.0 if p50 is None else p50.value)

    def tail_interval(self, name: str, bound: float | None) -> tuple[float, float] | None:
        """Return the interval in ms of a tail over processes, which reaches up to the bound at least."""
        fewest = min((len(p.invoke_ns) for p in self.processes), default=0)
        key = f"{name}_ci95"
        if bound is None or fewest < FLOORS[name]:
            needs = f"{fewest} samples of a process; an interval of {name} needs {FLOORS[name]}"
            # Where the tail itself is missing, its reason is the interval's as well.
            self.missing[key] = self.missing.get(name, needs)
            return None
        found = self._over([percentile(p.invoke_ns, TAILS[name]) for p in self.processes])
        interval = self.interval(key, found)
        return None if interval is None else (interval[0], max(interval[1], bound))

    def _over(self, values_ns: Sequence[float]) -> Estimate:
        """Return the estimate of figures of the processes, over their tunings where these are several."""
        # A time of 0 ns, below the clock's step, has no logarithm.
        logs = [math.log(max(value, 1.0) / 1e6) for value in values_ns]
        return estimate(units(logs, [p.tuning for p in self.processes]))


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
