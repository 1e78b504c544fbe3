"""A seccomp filter: an arm's process acts on no process beside it, and leaves its process group by no call.

All processes of a runner have one user, whom the kernel lets act on each other by their numbers; file rules
do not reach that. A filter cannot tell the number of an own thread from another process's, so a call may
name 0, which is the caller itself, or the process that installs the filter.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Final

from agent.processes.sandbox import bpf
from agent.processes.sandbox.bpf import NO_EFFECT, PASS, Step, fail, load_argument, on, only


@dataclass(frozen=True, slots=True)
class _Call:
    """A system call, by its numbers on both architectures; None where it has none. `argument`: the index of
    the one that names a process.
    """

    x86_64: int | None
    aarch64: int | None
    argument: int = 0

    def number(self, machine: str) -> int | None:
        return self.x86_64 if machine == "x86_64" else self.aarch64


REFUSED: Final = {
    "ptrace": _Call(101, 117),
    "process_vm_readv": _Call(310, 270),
    "process_vm_writev": _Call(311, 271),
    "pidfd_open": _Call(434, 434),
    "pidfd_getfd": _Call(438, 438),
    "process_madvise": _Call(440, 440),
    "process_mrelease": _Call(448, 448),
    "setsid": _Call(112, 157),
    "setpgid": _Call(109, 154),
    "setxattr": _Call(188, 5),
    "lsetxattr": _Call(189, 6),
    "fsetxattr": _Call(190, 7),
    "setxattrat": _Call(463, 463),
    "io_uring_setup": _Call(425, 425),
}
"""Calls that nothing needs which is measured. A process that left its group would run on while the group is
stopped; an attribute of a file may be its access list, by which its owner loses it; a ring sets attributes
past every filter of calls."""

OF_ONESELF: Final = {
    "prlimit64": _Call(302, 261),
    "sched_setscheduler": _Call(144, 119),
    "sched_setparam": _Call(142, 118),
    "sched_setattr": _Call(314, 274),
    "migrate_pages": _Call(256, 238),
    "move_pages": _Call(279, 239),
    "perf_event_open": _Call(298, 241, argument=1),
}
"""Calls that name a process, and are refused for another."""

SIGNALS: Final = {
    "kill": _Call(62, 129),
    "tkill": _Call(200, 130),
    "tgkill": _Call(234, 131),
    "rt_sigqueueinfo": _Call(129, 138),
    "rt_tgsigqueueinfo": _Call(297, 240),
    "pidfd_send_signal": _Call(424, 424),
}
"""Calls that send a signal. Where Landlock does not keep signals inside, they are refused for all but the
process itself, its own children too: a compiler that hangs then ends with the process that started it."""

WITHOUT_EFFECT: Final = {
    "chmod": _Call(90, None),
    "fchmod": _Call(91, 52),
    "fchmodat": _Call(268, 53),
    "fchmodat2": _Call(452, 452),
}
"""Calls that say success and do nothing. Landlock has no right for modes, by which a neighbour's folder could
be closed to it; and libraries copy modes in passing (`shutil.copy`), so that an error would end them."""

_AFFINITY: Final = _Call(203, 122)
"""sched_setaffinity(2), without effect for all but the caller: libgomp and PoCL, told to bind their threads,
bind them by number and end where that fails. A process has its arm's CPUs already."""

_SETPRIORITY: Final = _Call(141, 140)
_IOPRIO_SET: Final = _Call(251, 30)
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
"""First argument of setpriority(2) and of ioprio_set(2): the second names a process, no group or user."""

_FCNTL: Final = _Call(72, 25)
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
"""Commands of fcntl(2): who gets a file's signals, and a lease, for which who opens the file must wait."""

_PRCTL: Final = _Call(157, 167)
_PR_SCHED_CORE: Final = 62
"""Option of prctl(2): share a processor core with nobody else, which keeps others from its other thread."""


def restrict(*, signals_are_scoped: bool) -> None:
    """Install the filter for this process and its children; new privileges must be forbidden before.

    `signals_are_scoped`: Landlock keeps signals inside. Raises `OSError`.
    """
    leads = os.getpgrp() == os.getpid()
    bpf.install(steps(os.uname().machine, os.getpid(), leads=leads, signals_are_scoped=signals_are_scoped))


def steps(machine: str, own: int, *, leads: bool, signals_are_scoped: bool) -> list[Step]:
    """Return the filter of process `own`. `leads`: it leads its process group, and may signal that."""
    not_allowed, itself = fail(errno.EPERM), (0, own)
    answers = [
        *((call, [not_allowed]) for call in REFUSED.values()),
        *((call, [NO_EFFECT]) for call in WITHOUT_EFFECT.values()),
        *((call, only(call.argument, itself, not_allowed)) for call in OF_ONESELF.values()),
        (_AFFINITY, only(0, itself, NO_EFFECT)),
        (_SETPRIORITY, _priority(_PRIO_PROCESS, own)),
        (_IOPRIO_SET, _priority(_IOPRIO_WHO_PROCESS, own)),
        (_FCNTL, _all_but(1, (_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE))),
        (_PRCTL, _all_but(0, (_PR_SCHED_CORE,))),
    ]
    if not signals_are_scoped:
        reached = (own, *((0, -own) if leads else ()))
        answers += ((call, only(0, reached, not_allowed)) for call in SIGNALS.values())
    rules = (on(number, body) for call, body in answers if (number := call.number(machine)) is not None)
    return bpf.program(machine, rules)


def _priority(of_process: int, own: int) -> list[Step]:
    """Let the caller's own priority through, and that of no group or user."""
    return [
        load_argument(0),
        (bpf.IF_EQUAL, 1, 0, of_process),
        fail(errno.EPERM),
        *only(1, (0, own), fail(errno.EPERM)),
    ]


def _all_but(index: int, refused: tuple[int, ...]) -> list[Step]:
    """Refuse some values of an argument."""
    checks = [step for value in refused for step in ((bpf.IF_EQUAL, 0, 1, value), fail(errno.EPERM))]
    return [load_argument(index), *checks, PASS]
