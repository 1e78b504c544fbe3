"""One model invoked without a pause for a long time: how its latency changes as the machine warms up."""

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from runtime.measure.loading import Subject
from runtime.measure.loop import Loop, collector_off

SLICE_S: Final = 30.0
"""Seconds of a slice, of which one p50 is kept. Chosen: heat and power limits act within minutes, and a slice
of half a minute has samples enough of all but the slowest models."""

FEWEST_SLICES: Final = 4
"""Slices that a shorter time is divided into, so that a change is told from a single odd slice."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the time: `begin_ns` by CLOCK_MONOTONIC, how long it was, its invokes and their median."""

    begin_ns: int
    seconds: float
    runs: int
    p50_ns: int


def sustain(
    subject: Subject, seconds: float, on_slice: Callable[[int, int], None] = lambda _number, _of: None
) -> tuple[Slice, ...]:
    """Open a model and invoke it for so many seconds, each sample end to end, as a timed invoke is.

    A slice ends with the invoke that is running at its end, and there are two at least, however long an
    invoke takes: a first and a last one. `on_slice` is told which slice of how many
    begins, between two invokes. Raises what `Subject.open`, `Subject.pool` and an invoke raise.
    """
    model = subject.open().model
    loop = Loop(model, subject.pool(model))
    loop.once(0)
    # Slices of equal length, as near to `SLICE_S` as the time allows.
    count = max(FEWEST_SLICES, round(seconds / SLICE_S))
    slice_ns = int(1e9 * seconds / count)
    found: list[Slice] = []
    with collector_off():
        until = time.perf_counter_ns() + int(1e9 * seconds)
        while len(found) < count:
            begin = time.perf_counter_ns()
            if begin >= until and len(found) > 1:
                break
            on_slice(len(found) + 1, count)
            found.append(_slice(loop, begin, slice_ns))
    return tuple(found)


def _slice(loop: Loop, begin: int, slice_ns: int) -> Slice:
    samples, now = array("q"), begin
    while not samples or now - begin < slice_ns:
        samples.append(loop.once(len(samples) % loop.sets)[0])
        now = time.perf_counter_ns()
    # The lower median is the nearest rank, as everywhere.
    return Slice(begin, (now - begin) / 1e9, len(samples), median_low(samples))
