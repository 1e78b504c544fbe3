"""Reads the kernel's counters of a host during a measurement, and derives what else ran in that time.

Read just before and just after a round of slices, never within it. A counter that this machine lacks is
None, and so is what would follow from it.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, groups, text_of
from runtime.common.system import boot_clock_ns

_TICK_S: Final = 1.0 / os.sysconf("SC_CLK_TCK")
"""Seconds of the unit in which the kernel counts the use of the CPUs."""

# Not idle (3) and iowait (4), nor guests (8, 9), whose time is in user and nice already (proc(5)).
_BUSY: Final = (0, 1, 2, 5, 6)
"""Fields of a line of /proc/stat after its name: user, nice, system, irq, softirq."""

_STEAL: Final = 7
"""The field of the time that a hypervisor gave to other machines."""

_SCHEDSTAT_FIELDS: Final = 3
"""Fields of /proc/PID/schedstat: time on a CPU and time in a run queue, both in ns, and time slices."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading. CPU times in seconds, summed over the CPUs that the farm may use."""

    at_s: float
    asleep_s: float
    own_s: float
    busy_s: float | None
    steal_s: float | None
    throttled_s: float | None
    waiting_s: float | None
    swapped_in: int | None

    @classmethod
    def now(cls, cpus: Collection[int], root: Path = ROOT) -> Counters:
        """Read the counters; `cpus`: those that the farm may use."""
        busy, steal = _cpu_times(cpus, root)
        now_s = time.monotonic()
        return cls(
            at_s=now_s,
            # The clock of the boot goes on while a machine sleeps, this one does not.
            asleep_s=boot_clock_ns() / 1e9 - now_s,
            # Of children, those that were waited for; `Window.between` is told of others.
            own_s=sum(_used_s(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)),
            busy_s=busy,
            steal_s=steal,
            throttled_s=_throttled_s(root),
            waiting_s=_waiting_s(root),
            swapped_in=_swapped_in(root),
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The difference of two readings. `foreign_s`: CPU time of all but this process, its children, and those
    whose time is known to be the farm's.

    `from_s`: its beginning, on CLOCK_MONOTONIC.
    """

    from_s: float
    wall_s: float
    cpus: int
    asleep_s: float
    foreign_s: float | None
    steal_s: float | None
    throttled_s: float | None
    waiting_s: float | None
    swapped_in: int | None

    @classmethod
    def between(cls, first: Counters, last: Counters, cpus: int, measured_s: float = 0.0) -> Window:
        """Everything that was counted from the first reading to the last, on `cpus` CPUs.

        `measured_s`: the CPU time of measuring processes that live on, which is not foreign.
        """
        busy = _difference(first.busy_s, last.busy_s)
        own = last.own_s - first.own_s + measured_s
        return cls(
            from_s=first.at_s,
            wall_s=last.at_s - first.at_s,
            cpus=cpus,
            asleep_s=last.asleep_s - first.asleep_s,
            # The kernel counts `busy` in ticks and `own` finer: the difference may be below 0.
            foreign_s=None if busy is None else max(0.0, busy - own),
            steal_s=_difference(first.steal_s, last.steal_s),
            throttled_s=_difference(first.throttled_s, last.throttled_s),
            waiting_s=_difference(first.waiting_s, last.waiting_s),
            swapped_in=None if None in (first.swapped_in, last.swapped_in)
            else (last.swapped_in or 0) - (first.swapped_in or 0),
        )  # fmt: skip

    @property
    def rounding_s(self) -> float:
        """By how many seconds the CPU times may be wrong: two standard deviations of what rounding does.

        Of each CPU two fields (user, system) are rounded down to a tick at both ends of the window: four
        errors with a variance of 1/12 each, which add up like independent ones.
        """
        return 2.0 * _TICK_S * math.sqrt(self.cpus * 4.0 / 12.0)

    @property
    def surely_foreign_s(self) -> float | None:
        """The foreign CPU time that no rounding explains; None where it is not counted."""
        return None if self.foreign_s is None else max(0.0, self.foreign_s - self.rounding_s)

    @property
    def surely_stolen_s(self) -> float:
        """The stolen time that no rounding explains; one field of each CPU counts it."""
        return max(0.0, (self.steal_s or 0.0) - self.rounding_s / math.sqrt(2.0))

    def __add__(self, later: Window) -> Window:
        """Sum two windows that need not be adjacent, as one of their joint length."""

        def added(one: float | None, other: float | None) -> float | None:
            return None if one is None or other is None else one + other

        return Window(
            from_s=self.from_s,
            wall_s=self.wall_s + later.wall_s,
            cpus=self.cpus,
            asleep_s=self.asleep_s + later.asleep_s,
            foreign_s=added(self.foreign_s, later.foreign_s),
            steal_s=added(self.steal_s, later.steal_s),
            throttled_s=added(self.throttled_s, later.throttled_s),
            waiting_s=added(self.waiting_s, later.waiting_s),
            swapped_in=None if None in (self.swapped_in, later.swapped_in)
            else (self.swapped_in or 0) + (later.swapped_in or 0),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """The seconds that the threads of one process ran and waited for a CPU, by the kernel."""

    ran_s: Mapping[str, float]
    waited_s: Mapping[str, float]

    @classmethod
    def of(cls, pid: int, root: Path = ROOT) -> ThreadTimes | None:
        """Read the times of a process; None where the kernel keeps no `schedstat`."""
        ran, waited = {}, {}
        for thread in (root / f"proc/{pid}/task").glob("[0-9]*"):
            fields = text_of(thread / "schedstat").split()
            if len(fields) == _SCHEDSTAT_FIELDS:
                ran[thread.name], waited[thread.name] = int(fields[0]) * 1e-9, int(fields[1]) * 1e-9
        return cls(ran, waited) if ran else None

    def since(self, earlier: ThreadTimes) -> tuple[float, float]:
        """Return the CPU time of all threads since then, and the wait of the one that waited most.

        A thread that began meanwhile has run and waited from 0 on.
        """
        # Threads that have ended meanwhile are not in it: the sum is the least that was used.
        ran = sum(max(0.0, now - earlier.ran_s.get(thread, 0.0)) for thread, now in self.ran_s.items())
        waits = (now - earlier.waited_s.get(thread, 0.0) for thread, now in self.waited_s.items())
        return ran, max(waits, default=0.0)


def _difference(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else last - first


def _used_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _cpu_times(cpus: Collection[int], root: Path) -> tuple[float | None, float | None]:
    wanted = {f"cpu{cpu}" for cpu in cpus}
    rows = [line.split() for line in text_of(root / "proc/stat").splitlines()]
    found = [list(map(int, row[1:])) for row in rows if row and row[0] in wanted]
    if len(found) != len(wanted) or any(len(row) <= _STEAL for row in found):
        return None, None
    busy = sum(row[field] for row in found for field in _BUSY)
    return busy * _TICK_S, sum(row[_STEAL] for row in found) * _TICK_S


def _throttled_s(root: Path) -> float | None:
    """Return the seconds for which CPU quotas stopped this process's groups; None if nothing counts them."""
    found = []
    for folder in groups("cpu", root):
        words = text_of(folder / "cpu.stat").split()
        counted = dict(zip(words[::2], words[1::2], strict=False))
        for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
            if counted.get(name, "").isdecimal():
                found.append(int(counted[name]) * unit)
    return sum(found) if found else None


def _waiting_s(root: Path) -> float | None:
    """Return the seconds in which some runnable task of the host had no CPU (`some` of its CPU pressure)."""
    for line in text_of(root / "proc/pressure/cpu").splitlines():
        if line.startswith("some "):
            _, _, total = line.rpartition("total=")
            return int(total) * 1e-6 if total.isdecimal() else None
    return None


def _swapped_in(root: Path) -> int | None:
    for line in text_of(root / "proc/vmstat").splitlines():
        name, _, value = line.partition(" ")
        if name == "pswpin":
            return int(value)
    return None
