"""A seccomp filter: an arm's process leaves its process group by no call, and signals nobody beside it.

It stacks on the runner's filter (`agent.processes.sandbox.seccomp`), which the process that decides lives in
too: that one starts groups, and signals them.
"""

import errno
import os
from typing import Final

from agent.processes.sandbox import bpf
from agent.processes.sandbox.bpf import Step, fail, only

REFUSED: Final = ("setsid", "setpgid")
"""Calls by which a process would leave its group, and run on while that is stopped."""

SIGNALS: Final = (
    "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal",
)  # fmt: skip
"""Calls that send a signal. Where Landlock does not keep signals inside, they are refused for all but the
process itself, its own children too: a compiler that hangs then ends with the process that started it."""


def restrict(*, signals_are_scoped: bool) -> None:
    """Install the filter for this process and its children; new privileges must be forbidden before.

    `signals_are_scoped`: Landlock keeps signals inside. Raises `OSError`.
    """
    leads = os.getpgrp() == os.getpid()
    bpf.install(steps(os.uname().machine, os.getpid(), leads=leads, signals_are_scoped=signals_are_scoped))


def steps(machine: str, own: int, *, leads: bool, signals_are_scoped: bool) -> list[Step]:
    """Return the filter of process `own`. `leads`: it leads its process group, and may signal that."""
    answers = [(call, [fail(errno.EPERM)]) for call in REFUSED]
    if not signals_are_scoped:
        reached = (own, *((0, -own) if leads else ()))
        answers += [(call, only(0, reached, fail(errno.EPERM))) for call in SIGNALS]
    return bpf.program(machine, bpf.rules(machine, answers))
