"""Tells whether other programs had the cores while something was measured."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Final

_TASKS = Path("/proc/self/task")
_STAT = Path("/proc/stat")

MOST_WAITING: Final = 0.1
"""Share of a measurement for which the process's threads, all together, may have waited for a core; a program
that takes a core makes them wait for about half of the time. Larger keeps measurements that were disturbed,
smaller repeats them needlessly."""

MOST_FOREIGN: Final = 0.25
"""Cores that other programs may have used beside. The threads of this process wait for each other, too, where
persistent kernels spin on every core: waiting alone says little. Larger keeps measurements that were
disturbed; smaller calls the housekeeping of a quiet machine a disturbance."""

_TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds of the unit in which the kernel counts the use of the cores."""

_TICKS_OF_DOUBT: Final = 3
"""Units by which a short measurement's count may be wrong: each core's time is rounded at both ends."""


def waited_ns() -> int | None:
    """Nanoseconds for which this process's threads were ready to run but had no core; None if unknown."""
    total = 0
    try:
        for task in _TASKS.iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread ended meanwhile
    except (OSError, ValueError, IndexError):
        return None
    return total


def foreign_ns() -> int | None:
    """Nanoseconds of all cores that other programs have used, or the host has withheld; None if unknown."""
    try:
        name, *ticks = _STAT.read_text().splitlines()[0].split()
        user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, ticks[:8])
    except (OSError, ValueError, IndexError):
        return None
    busy = user + nice + system + irq + softirq + steal
    return busy * _TICK_NS - process_time_ns() if name == "cpu" else None


class Contention:
    """Watches from its making on.

    Disturbed means that this process's threads waited for cores, and that others had them. Where the kernel
    does not count waiting, nothing is ever called disturbed; where it does not count the use of cores,
    waiting decides alone.
    """

    def __init__(self) -> None:
        self._waited, self._foreign, self._started = waited_ns(), foreign_ns(), perf_counter_ns()

    def is_disturbed(self) -> bool:
        """True where other programs had the cores too long for the time to be trusted."""
        waited, foreign = waited_ns(), foreign_ns()
        elapsed = perf_counter_ns() - self._started
        if waited is None or self._waited is None or waited - self._waited <= MOST_WAITING * elapsed:
            return False
        if foreign is None or self._foreign is None:
            return True
        return foreign - self._foreign > MOST_FOREIGN * elapsed + _TICKS_OF_DOUBT * _TICK_NS
