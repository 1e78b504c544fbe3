"""How many runs a process makes: what the level asks for, and the warm-up that a calibration found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from runtime.tools.stopping import WINDOW

FEWEST_WARMUP: Final = 3 * WINDOW
"""Runs in which the steady state can be seen, at least."""

WARMUP_MARGIN: Final = 1.5
"""How many times the runs that one process needed to the steady state the others are given: processes
differ."""

_LONGEST_WARMUP: Final = 3.0
"""How many times its planned seconds a warm-up may last, so that a slow model is measured in the time
planned."""

_SHORTEST_CAP_S: Final = 1.0
"""Seconds that a warm-up may last at least, however short it is planned."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Counts of one process: at least `min_runs` and `min_seconds`, at most `max_runs` and `max_seconds`.

    `floor_runs` are done even when `max_seconds` is over. `seeks_precision`: beyond its least counts, a loop
    goes on until its median is known well enough, or its noise is.
    """

    warmup_runs: int
    warmup_seconds: float
    min_runs: int
    max_runs: int
    min_seconds: float
    max_seconds: float
    floor_runs: int = 1
    seeks_precision: bool = False

    def goes_on(self, runs: int, seconds: float, wanted: int) -> bool:
        """Whether another run is due: of the least counts, or up to so many that are `wanted` beyond them."""
        if runs >= self.max_runs:
            return False
        if runs < self.floor_runs:
            return True
        lacks = runs < self.min_runs or seconds < self.min_seconds or runs < wanted
        return seconds < self.max_seconds and lacks

    @property
    def warm_up(self) -> LoopPlan:
        """The warm-up as a loop plan: both its counts are minima."""
        return LoopPlan(
            warmup_runs=0,
            warmup_seconds=0.0,
            min_runs=self.warmup_runs,
            max_runs=self.max_runs,
            min_seconds=self.warmup_seconds,
            max_seconds=max(_LONGEST_WARMUP * self.warmup_seconds, _SHORTEST_CAP_S),
            floor_runs=min(1, self.warmup_runs),
        )


def exactly(runs: int) -> LoopPlan:
    """So many runs, however long they take."""
    return LoopPlan(
        warmup_runs=0,
        warmup_seconds=0.0,
        min_runs=runs,
        max_runs=max(1, runs),
        min_seconds=0.0,
        max_seconds=math.inf,
        floor_runs=0,
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The warm-up of all processes of a cell: its runs, and whether one process reached the steady state."""

    warmup_runs: int
    steady_state: str

    @classmethod
    def of(cls, plan: LoopPlan, needed: int, run_ns: float, steady_state: str) -> Calibration:
        """The calibration of a process that was steady after `needed` runs of `run_ns`.

        The plan's counts are the least ones, and its time bounds them.
        """
        warm_up, run_s = plan.warm_up, max(run_ns, 1.0) / 1e9
        runs = max(
            math.ceil(WARMUP_MARGIN * needed), warm_up.min_runs, math.ceil(warm_up.min_seconds / run_s)
        )
        most = min(warm_up.max_runs, max(1, int(warm_up.max_seconds / run_s)))
        return cls(min(runs, most), steady_state)

    def facts(self) -> dict[str, str]:
        """What the report of the process says of it."""
        return {"warmup_runs": str(self.warmup_runs), "steady_state": self.steady_state}
