"""Counts the runs that a model finishes in a second while so many of them are in flight.

A run is end to end, as a timed invoke is: from the inputs in host memory to all outputs read into it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.delegates.asynchrony import NotStarted, RunSlot
from runtime.delegates.base import Array
from runtime.measure.in_flight import Alone, Blocking, keep_in_flight, slots_of
from runtime.measure.loading import Opened, Subject
from runtime.measure.loop import collector_off

_ALONE: Final = "in_flight: 1 measures runs one after another"


@dataclass(frozen=True, slots=True)
class Throughput:
    """`runs` were started and ended within `wall_ns`; both are 0 where `why_not` says why."""

    runs: int = 0
    wall_ns: int = 0
    why_not: str = ""


def throughput(
    subject: Subject, in_flight: int, seconds: float, clock: Callable[[], int] = time.perf_counter_ns
) -> Throughput:
    """Open a model and keep so many runs in flight for so many seconds, after a short warm-up.

    `clock` counts ns. A run that gives something else than a run alone leaves no throughput. Raises what
    `Subject.open`, `Subject.pool` and a run raise.
    """
    opened = subject.open()
    slots = _slots(opened, in_flight)
    if isinstance(slots, NotStarted):
        return Throughput(why_not=slots.reason)
    pool = subject.pool(opened.model)
    # Runs one after another are runs alone; a model that keeps state would not repeat its outputs either.
    alone = None if in_flight == 1 else Alone.of(opened, subject.path, pool)
    wrong: list[str] = []

    def inputs(number: int) -> tuple[Array, ...]:
        return pool.sets[number % len(pool.sets)]

    def check(number: int, outputs: tuple[Array, ...]) -> None:
        found = None if alone is None or wrong else alone.difference(number % len(pool.sets), outputs)
        if found is not None:
            wrong.append(f"with {in_flight} runs in flight, unlike a run alone: {found}")

    warm_up = 2 * max(in_flight, len(pool.sets))
    keep_in_flight(slots, inputs, lambda started: started < warm_up, check)
    last: dict[int, tuple[int, tuple[Array, ...]]] = {}

    def keep(number: int, outputs: tuple[Array, ...]) -> None:
        # Judged behind the timed runs, and only one of each slot is kept: all of them would fill the memory.
        last[number % in_flight] = number, outputs

    with collector_off():
        began = clock()
        until = began + int(1e9 * seconds)
        runs = keep_in_flight(slots, inputs, lambda started: started < in_flight or clock() < until, keep)
        wall_ns = clock() - began
    for number, outputs in last.values():
        check(number, outputs)
    return Throughput(why_not=wrong[0]) if wrong else Throughput(runs, wall_ns)


def _slots(opened: Opened, in_flight: int) -> Sequence[RunSlot] | NotStarted:
    if in_flight == 1:
        return [Blocking(opened.model)]
    slots = slots_of(opened, in_flight)
    return NotStarted(f"{slots.reason}; {_ALONE}") if isinstance(slots, NotStarted) else slots
