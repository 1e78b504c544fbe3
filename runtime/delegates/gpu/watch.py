"""Returns to plain enqueues while other programs starve persistent segments.

Persistent segments spin at their barriers: where another program takes a core away, one run can take a
hundred times longer. The watch detects that by the runs' times and uses plain enqueues for a while.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Schedule = TypeVar("Schedule")

SLOW_FACTOR: Final = 8.0
"""A run that takes this many times as long as the best one was starved. Clock changes and other noise stay
below it; a group that waits for a thread exceeds it."""

STRIKES: Final = 3
"""Starved runs, less the good ones between them, until the watch steps back. Fewer, and a single pause of the
machine costs the faster schedule; more, and each costs a run that is many times longer."""

PAUSE_RUNS: Final = 64
"""Plain runs before the persistent schedule gets another chance; doubled each time it is lost again. Fewer
try sooner after a short disturbance."""

MOST_PAUSE_RUNS: Final = 4096
"""Plain runs to which the pause grows at most. Under a lasting load three starved runs in 4096 cost little,
and when the load ends the faster schedule comes back."""


class SpinWatch(Generic[Schedule]):
    """Decides which of two schedules the next run uses; `preferred` and `plain` may be the same one."""

    def __init__(self, preferred: Schedule, plain: Schedule) -> None:
        self.preferred = preferred
        self.plain = plain
        self._best_s = float("inf")
        self._strikes = 0
        self._pause = PAUSE_RUNS
        self._plain_left = 0
        self.step_backs = 0
        """How often the watch has abandoned the persistent schedule for a while."""

    def next(self) -> Schedule:
        """The schedule of the next run."""
        return self.plain if self._plain_left else self.preferred

    def note(self, elapsed_s: float) -> None:
        """Note how long the run took whose schedule `next` returned."""
        if self._plain_left:
            self._plain_left -= 1
            return
        self._best_s = min(self._best_s, elapsed_s)
        if elapsed_s <= SLOW_FACTOR * self._best_s:
            self._strikes = max(0, self._strikes - 1)
            return
        self._strikes += 1
        if self._strikes >= STRIKES:
            self._strikes = 0
            self._plain_left = self._pause
            self._pause = min(2 * self._pause, MOST_PAUSE_RUNS)
            self.step_backs += 1
