"""Time arms that are no delegates of the farm by turns, in one process: in the order of the farm's blocks.

Only ratios of two arms of the same round are meaningful: the machine's speed drifts and is shared. A round
that others disturbed, by the rule of the farm's blocks (`agent.machine.rounds`), is repeated; where that is
the rule, all are kept.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from agent.machine.counters import Counters, Window
from agent.machine.rounds import Round
from agent.runner.judge.blocks import order_of_round
from runtime.common.statistics import estimate
from runtime.measure.loop import collector_off

_FIRST_CALLS = 4
"""Calls that warm up and tell how many fill a slice. Chosen."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """Median seconds of a call, per arm and kept round; `repeated`: disturbed rounds that were left out."""

    seconds: Mapping[str, tuple[float, ...]]
    repeated: int


def measure(arms: Mapping[str, Callable[[], float]], rounds: int) -> Rounds:
    """Ask every arm for a slice in each round, which gives the median seconds of its calls."""
    names, cpus = list(arms), sorted(os.sched_getaffinity(0))
    every: list[dict[str, float]] = []
    clean: list[dict[str, float]] = []
    with collector_off():
        while len(clean) < rounds and (len(every) < rounds or len(every) - len(clean) <= rounds // 2):
            before = Counters.now(cpus)
            order = [names[place] for place in order_of_round(len(names), len(every))]
            taken = {name: arms[name]() for name in order}
            every.append(taken)
            window = Window.between(before, Counters.now(cpus), len(cpus))
            if Round(window, {}).disturbed is None:
                clean.append(taken)
    kept = clean if len(clean) >= rounds else every
    seconds = {name: tuple(taken[name] for taken in kept) for name in names}
    return Rounds(seconds, len(every) - len(kept))


def slices(call: Callable[[], object], slice_s: float) -> Callable[[], float]:
    """Return a function that times so many calls as fill a slice and returns their median, in seconds.

    A call that alone takes longer is timed once, and not called besides.
    """
    taken = 0.0
    for _ in range(_FIRST_CALLS):
        if taken > slice_s:
            break
        began = time.perf_counter()
        call()
        taken = time.perf_counter() - began
    count = max(1, round(slice_s / taken))

    def timed() -> float:
        if count > 1:
            call()
        times = []
        for _ in range(count):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return median(times)

    return timed


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> dict[str, Any]:
    """Return the ratio of what was measured in the same rounds, with its interval over them, for a report."""
    logs = [math.log(a / b) for a, b in zip(numerator, denominator, strict=True)]
    mean = estimate(logs)
    return {"ratio": mean.value, "ci95": mean.interval, "rounds": mean.units}


def ends(of: Mapping[str, Any]) -> str:
    """Return the interval of a ratio as text."""
    return "no interval" if of["ci95"] is None else "{:.3f} to {:.3f}".format(*of["ci95"])
