"""Reads how the kernel schedules the threads of a process: the same after its slices as before them.

Whoever may signal a process may also slow it down: by its CPUs, its scheduler, its priority at the CPU and at
the disk. None of these shows in a counter of other programs.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.processes.sandbox.calls import number
from agent.processes.sandbox.kernel import system_call

_IO_OF_PROCESS: Final = 1
"""IOPRIO_WHO_PROCESS of linux/ioprio.h, which names a thread."""
_IO_CLASS_SHIFT: Final = 13
"""IOPRIO_CLASS_SHIFT of linux/ioprio.h."""
_POLICIES: Final = {0: "other", 1: "fifo", 2: "round robin", 3: "batch", 5: "idle", 6: "deadline"}
"""SCHED_* of linux/sched.h."""
_RESET_ON_FORK: Final = 0x40000000
"""SCHED_RESET_ON_FORK, which sched_getscheduler(2) adds."""
_IO_CLASSES: Final = ("none", "real time", "best effort", "idle")
"""IOPRIO_CLASS_* of linux/ioprio.h."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Of one thread: its policy, its priorities, and the CPUs that it may use."""

    policy: int
    nice: int
    io: int
    cpus: frozenset[int]

    @classmethod
    def of(cls, thread: int) -> "Scheduling":
        """Read that of a thread. Raises `OSError`."""
        if sys.platform != "linux":
            raise OSError(errno.ENOSYS, "ioprio_get of Linux")
        asked = number("ioprio_get", os.uname().machine)
        assert asked is not None
        return cls(
            policy=os.sched_getscheduler(thread) & ~_RESET_ON_FORK,
            nice=os.getpriority(os.PRIO_PROCESS, thread),
            io=system_call(asked, ctypes.c_int(_IO_OF_PROCESS), ctypes.c_int(thread)),
            cpus=frozenset(os.sched_getaffinity(thread)),
        )

    def __str__(self) -> str:
        kind, level = self.io >> _IO_CLASS_SHIFT, self.io & ((1 << _IO_CLASS_SHIFT) - 1)
        disk = f"{_IO_CLASSES[kind] if kind < len(_IO_CLASSES) else kind} {level}"
        policy = _POLICIES.get(self.policy, str(self.policy))
        return f"policy {policy}, nice {self.nice}, disk {disk}, CPUs {','.join(map(str, sorted(self.cpus)))}"


def of_threads(pid: int) -> dict[int, Scheduling]:
    """Return that of each thread of a process; one that has ended meanwhile is missing, as all are where
    there is no /proc.
    """
    found = {}
    for thread in map(int, _threads(pid)):
        try:
            found[thread] = Scheduling.of(thread)
        except OSError:
            continue
    return found


def change(before: Mapping[int, Scheduling], after: Mapping[int, Scheduling]) -> str | None:
    """Say what is different of the first thread that is scheduled otherwise; None where none is."""
    # Threads that began or ended in between have nothing to compare with.
    for thread in sorted(before.keys() & after.keys()):
        if before[thread] != after[thread]:
            return f"it was scheduled otherwise in the end: {before[thread]}; then {after[thread]}"
    return None


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(Path("/proc", str(pid), "task"))  # noqa: PTH208  # names are all it takes
    except OSError:
        return []
