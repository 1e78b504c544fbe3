"""LiteRT's measuring loop, by LiteRT's definitions, which are not the farm's own."""

import time
from collections.abc import Callable
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
