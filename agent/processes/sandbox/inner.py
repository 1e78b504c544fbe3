"""The boundary around one process of an arm, inside the runner's: it writes, signals and slows no neighbour.

A runner's processes share a user, a folder and the runner's boundary. This second boundary needs no rights,
so that the runner can close it, between fork and exec, around each process that it starts. It stacks: what
the runner's boundary refuses stays refused. So does its filter of system calls, which keeps the process in
its group and its signals from others: the process that decides starts groups, and signals them.
"""

import errno
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from agent.processes.sandbox import bpf, kernel, landlock
from agent.processes.sandbox.reach import device_nodes

REFUSED: Final = ("setsid", "setpgid", "pidfd_send_signal")
"""Calls by which a process would leave its group, and run on while that is stopped, and the one that sends a
signal by a descriptor, of which a filter cannot see whose it is: any folder /proc/PID serves as one."""

SIGNALS: Final = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Calls that send a signal to a number. Where Landlock does not keep signals inside, they are refused for all
but the process itself, its own children too: a compiler that hangs then ends with the process that started
it."""

_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
"""Commands of ioctl(2), of asm-generic/sockios.h: who gets a socket's signals, of any kind by F_SETSIG.
Refused like `SIGNALS`. Those of fcntl(2) the runner's filter refuses."""


def restrict(*, signals_are_scoped: bool) -> None:
    """Install the filter for this process and its children; new privileges must be forbidden before.

    `signals_are_scoped`: Landlock keeps signals inside. Raises `OSError`.
    """
    # `subprocess` has set the process group by now: it does so before it calls `preexec_fn`.
    leads = os.getpgrp() == os.getpid()
    bpf.install(steps(os.uname().machine, os.getpid(), leads=leads, signals_are_scoped=signals_are_scoped))


def steps(machine: str, own: int, *, leads: bool, signals_are_scoped: bool) -> list[bpf.Step]:
    """Return the filter of process `own`. `leads`: it leads its process group, and may signal that."""
    answers = [(call, [bpf.fail(errno.EPERM)]) for call in REFUSED]
    if not signals_are_scoped:
        # By kill(2), 0 is the caller's process group and -own the group that it leads.
        reached = (own, *((0, -own) if leads else ()))
        answers += [(call, bpf.only(0, reached, bpf.fail(errno.EPERM))) for call in SIGNALS]
        answers.append(("ioctl", bpf.all_but(1, (_FIOSETOWN, _SIOCSPGRP))))
    return bpf.program(machine, bpf.rules(machine, answers))


_OWN_FACTS = Path("/proc/self")
"""A process may write its own, such as `clear_refs`, which resets the peak of its memory."""


@dataclass(frozen=True, slots=True)
class InnerBoundary:
    """The paths that a process may write: the folders `write`, the files and folders `chosen` by the user as
    far as they exist, and, without emptying them, the files `append`. It may read whatever the runner may.
    No folder above one of `write` may be another arm's to write.
    """

    write: tuple[Path, ...]
    append: tuple[Path, ...] = ()
    chosen: tuple[Path, ...] = ()

    def enter(self) -> None:
        """Close the boundary around this process. Raises `OSError` once the reason is in the log.

        Its parent can still signal it; it cannot signal its parent.
        """
        with kernel.failure_in_log():
            kernel.forbid_new_privileges()
            abi = landlock.supported_abi()
            if abi:
                also = [(path, landlock.APPEND) for path in (*self.append, *device_nodes(), _OWN_FACTS)]
                also += [(path, landlock.WRITE) for path in self.chosen]
                landlock.restrict_writes(self.write, also, abi)
            if bpf.is_available():
                restrict(signals_are_scoped=abi >= landlock.SCOPED_ABI)


@cache
def lacking() -> tuple[str, ...]:
    """Return what this kernel leaves open between the arms of a runner, each with what is missing."""
    abi, filters = landlock.supported_abi(), bpf.is_available()
    found = []
    if abi == 0:
        found.append("closed files of other arms (no Landlock: Linux 5.13 or newer with `lsm=landlock`)")
    elif abi < landlock.TRUNCATE_ABI:
        found.append(
            f"files of other arms kept from being emptied (Landlock {abi}; that needs Landlock "
            f"{landlock.TRUNCATE_ABI}, Linux 6.2)"
        )
    if not filters:
        if abi < landlock.SCOPED_ABI:
            found.append(
                f"signals kept inside (neither a filter of system calls nor Landlock {landlock.SCOPED_ABI})"
            )
        found.append("priorities, limits and modes of other arms kept (no filter of system calls)")
    return tuple(found)
