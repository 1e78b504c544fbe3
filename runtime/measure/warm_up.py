"""Plans the warm-up: one process looks for the steady state, the others make as many runs.

The state is steady where the medians of windows of ten runs stay the same, as Georges et al. (2007) have it.
"""

import math
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runtime.measure.loop import Loop

WINDOW: Final = 10
"""Runs of a window of the warm-up. Chosen: enough for a median, few enough to see the end of a fast start."""

SAME: Final = 0.02
"""Largest share by which the medians of neighbouring windows differ in the steady state. Chosen above what
noise does to the median of ten runs; larger would end a slow approach too early."""

CALM: Final = 0.05
"""Largest spread of a window in the steady state, as a share: its quartiles, as a standard deviation."""

GROWTH: Final = 1.1
"""Factor between the counts of samples at which a loop looks whether it may end. Closer to one looks more
often, each time pausing the loop for a sort of its samples."""

_QUARTILES: Final = 1.349
"""Distance of the quartiles of a normal distribution in standard deviations."""


def is_steady(samples: NDArray[np.int64]) -> bool:
    """Return whether the last three windows of a warm-up, in ns and in order, show a steady state."""
    if len(samples) < 3 * WINDOW:
        return False
    windows = samples[-3 * WINDOW :].reshape(3, WINDOW).astype(np.float64)
    first, second, third = np.median(windows, axis=1)
    if min(first, second) <= 0.0 or third <= 0.0:
        return False
    low, high = np.quantile(windows[-1], (0.25, 0.75))
    is_calm = (high - low) / _QUARTILES < CALM * third
    return bool(is_calm and abs(second / first - 1.0) < SAME and abs(third / second - 1.0) < SAME)


FEWEST_WARMUP: Final = 3 * WINDOW
"""Runs in which the steady state can be seen, at least."""

WARMUP_MARGIN: Final = 1.5
"""How many times the runs that one process needed to the steady state the others are given: processes
differ."""

LONGEST_WARMUP: Final = 3.0
"""How many times its planned seconds a warm-up may last, so that a slow model is measured in the time
planned."""

SHORTEST_CAP_S: Final = 1.0
"""Seconds that a warm-up may last at least, however short it is planned."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The least runs and seconds of a warm-up, as a level plans them; 0 and 0 is none.

    `most_runs`: its bound, which is also that of its samples.
    """

    runs: int
    seconds: float
    most_runs: int = 1_000_000

    @property
    def longest_s(self) -> float:
        """Seconds after which a warm-up ends whatever it has reached."""
        return max(LONGEST_WARMUP * self.seconds, SHORTEST_CAP_S)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The warm-up of all processes of a cell: its runs, and whether one process reached the steady state."""

    warmup_runs: int
    steady_state: str

    @classmethod
    def of(cls, plan: WarmUp, needed: int, run_ns: float, steady_state: str) -> "Calibration":
        """Return the calibration of a process that was steady after `needed` runs of `run_ns`.

        The plan's counts are the least ones, and its time bounds them.
        """
        run_s = max(run_ns, 1.0) / 1e9
        runs = max(math.ceil(WARMUP_MARGIN * needed), plan.runs, math.ceil(plan.seconds / run_s))
        return cls(min(runs, plan.most_runs, max(1, int(plan.longest_s / run_s))), steady_state)

    def facts(self) -> dict[str, str]:
        """Return the facts for the report of the process."""
        return {"warmup_runs": str(self.warmup_runs), "steady_state": self.steady_state}


def calibrated(loop: Loop, plan: WarmUp, run_ns: int) -> Calibration:
    """Run a model until it is steady, or for as long as its warm-up may take; a run takes about `run_ns`."""
    if plan.runs == 0 and plan.seconds == 0.0:
        return Calibration(0, "not looked for: no warm-up was asked for")
    least_s = FEWEST_WARMUP * run_ns / 1e9
    if least_s > plan.longest_s:
        slow = f"{FEWEST_WARMUP} runs take {least_s:.1f} s, a warm-up at most {plan.longest_s:g} s"
        return Calibration.of(plan, 0, run_ns, f"not looked for: {slow}")
    last, runs = np.zeros(0, np.int64), 0
    # By the clock, not by the sum of the runs: of small models, looking takes longer than running.
    until = time.perf_counter() + plan.longest_s
    while not is_steady(last) and time.perf_counter() < until:
        more = loop.run(WINDOW * max(1, round((GROWTH - 1) * runs / WINDOW))).invoke_ns
        last, runs = np.concatenate([last, more])[-FEWEST_WARMUP:], runs + len(more)
    run_ns = int(np.median(last[-WINDOW:]))
    if is_steady(last):
        return Calibration.of(plan, runs, run_ns, f"after {runs} runs")
    # Processes that would not become steady either gain nothing by a longer warm-up than the plan's.
    return Calibration.of(plan, 0, run_ns, f"not reached in {runs} runs")
