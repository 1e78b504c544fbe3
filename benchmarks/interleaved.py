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
from typing import Any, Final

from agent.machine.counters import Counters, Window
from agent.machine.rounds import Round
from agent.runner.judge.blocks import order_of_round
from benchmarks.output import table
from runtime.common.statistics import estimate, geometric_mean
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
        # Goes on until there are enough clean rounds, or more than half as many as asked for were disturbed.
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


WITHIN: Final = 0.03
"""By how much medians may differ that agree, as a share, whatever the first differs from itself."""


def agreement(
    seconds: Mapping[str, Sequence[float]], ratios: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return milliseconds by arm, the ratios of the first arm once more and of another over the first, and if
    they agree: the other is off by at most `WITHIN`, or by twice what the first differs from itself.
    """
    itself, apart = (abs(one["ratio"] - 1) for one in ratios.values())
    ms = {name: 1000 * geometric_mean(values) for name, values in seconds.items()}
    return {"ms": ms, **ratios, "agree": apart <= max(WITHIN, 2 * itself)}


def agreement_table(heads: Sequence[str], arms: Sequence[str], rows: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of agreements by model; `arms`: the first, its repetition, the other."""
    first, again, other = arms
    return table(
        ("model", *heads, "its interval", "agree"),
        (
            (name, f"{row['ms'][first]:.4g}", f"{row[again]['ratio']:.4f}", f"{row[other]['ratio']:.4f}",
             ends(row[other]), "yes" if row["agree"] else "no")
            for name, row in rows.items()
        ),
    )  # fmt: skip
