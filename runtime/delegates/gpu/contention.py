"""Tells whether other programs had the cores while something was measured."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns
from typing import Final

_TASKS = Path("/proc/self/task")

MOST_WAITING: Final = 0.1
"""Share of a measurement for which the process's threads, all together, may have waited for a core. Threads
of one process wait for each other for less than that; a program that takes a core makes them wait for about
half of the time. Larger keeps measurements that were disturbed, smaller repeats them needlessly."""


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


class Contention:
    """Watches from its making on.

    Where the kernel does not count waiting, nothing is ever called disturbed.
    """

    def __init__(self) -> None:
        self._waited, self._started = waited_ns(), perf_counter_ns()

    def is_disturbed(self) -> bool:
        """True where the threads have waited for cores too long for the time to be trusted."""
        waited = waited_ns()
        if waited is None or self._waited is None:
            return False
        return waited - self._waited > MOST_WAITING * (perf_counter_ns() - self._started)
