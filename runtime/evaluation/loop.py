"""LiteRT's measuring loop and its statistics, by LiteRT's definitions, which are not the farm's own."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

NS_PER_US: Final = 1000
"""Nanoseconds of a microsecond, the unit of LiteRT's samples."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """Go on while fewer than `min_runs` or `min_secs` are done and `max_secs` are not exceeded."""

    min_runs: int
    min_secs: float
    max_secs: float

    def goes_on(self, runs: int, elapsed_s: float) -> bool:
        """Return True if another run follows. `max_secs` is looked at between runs only."""
        return (runs < self.min_runs or elapsed_s < self.min_secs) and elapsed_s <= self.max_secs


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses between runs in seconds. `frequency` (runs per second) overrides `delay`; negative is none."""

    delay: float = -1.0
    frequency: float = -1.0

    def pause(self, runs: int, elapsed_s: float) -> float:
        """Return the seconds to wait after so many runs; a late schedule waits for nothing and catches up."""
        return runs / self.frequency - elapsed_s if self.frequency > 0 else self.delay


def run_loop(
    rule: StopRule,
    pace: Pace,
    prepare: Callable[[], None],
    invoke: Callable[[], None],
    clock: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[int, ...]:
    """Return the times of the runs in whole microseconds; `prepare` sets the inputs outside of the time."""
    samples: list[int] = []
    started = clock()
    while rule.goes_on(len(samples), (clock() - started) / 1e9):
        prepare()
        before = clock()
        invoke()
        after = clock()
        samples.append((after - before) // NS_PER_US)
        pause = pace.pause(len(samples), (after - started) / 1e9)
        if pause > 0:
            sleep(pause)
    return tuple(samples)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Samples in microseconds by LiteRT's definitions: `std` is the population's, cut to an integer, and a
    percentile is the element at floor(n * p / 100) of the sorted samples.
    """

    samples: Sequence[int]

    @property
    def avg(self) -> float:
        """Return the mean, 0 without samples."""
        return sum(self.samples) / len(self.samples) if self.samples else 0.0

    @property
    def std(self) -> int:
        """Return the population's standard deviation, cut to an integer."""
        if not self.samples:
            return 0
        mean = self.avg
        return int(math.sqrt(sum((sample - mean) ** 2 for sample in self.samples) / len(self.samples)))

    def percentile(self, percent: int) -> int:
        """Return the element at floor(n * percent / 100) of the sorted samples, 0 without samples."""
        if not self.samples:
            return 0
        last = len(self.samples) - 1
        return sorted(self.samples)[min(last, len(self.samples) * percent // 100)]

    def line(self) -> str:
        """Return LiteRT's line of statistics."""
        count = len(self.samples)
        if not count:
            return "count=0"
        low, high, current = min(self.samples), max(self.samples), self.samples[-1]
        if low == high:
            return f"count={count} curr={current}(all same)"
        return (
            f"count={count} first={self.samples[0]} curr={current} min={low} max={high} avg={self.avg:g} "
            f"std={self.std} p5={self.percentile(5)} median={self.percentile(50)} p95={self.percentile(95)}"
        )
