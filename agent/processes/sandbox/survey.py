"""Surveys the boundaries that this kernel and this user's rights allow: each is tried in a process of its
own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from agent.processes import cgroup
from agent.processes.sandbox import bpf, kernel, landlock, namespaces, seccomp
from agent.processes.sandbox.namespaces import Namespaces

_FAULT_EXIT: Final = 255
"""Exit code of a trial that failed without an error of the kernel; other codes are its errors' numbers."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The available boundaries. `without`: those that are left open, each with the kernel's reason."""

    namespaces: Namespaces | None
    landlock_abi: int
    seccomp: bool
    counts_processes: bool
    without: tuple[str, ...]


@cache
def survey() -> Survey:
    """Try every boundary. Call it from a process with one thread."""
    without = []
    kind, why = _namespaces()
    abi = landlock.supported_abi()
    if abi == 0:
        without.append("closed files of others (no Landlock: Linux 5.13 or newer with `lsm=landlock`)")
    elif abi < landlock.SCOPED_ABI:
        without.append(
            f"signals kept inside (Landlock {abi}; they need Landlock {landlock.SCOPED_ABI}, Linux 6.12)"
        )
    no_filter = _trial(_filtered) if bpf.is_supported() else f"none for {os.uname().machine}"
    if no_filter:
        without.append(
            "closed local sockets of others, modes and times of their files, limits and priorities of their "
            f"processes, memory shared by a key (no filter of system calls: {no_filter})"
        )
        if kind is None:
            without.append(f"a closed network (neither that filter nor a namespace: {why})")
    if kind is None:
        without.append(f"own folders for temporary files, and an own view of processes (no namespace: {why})")
    elif kind is Namespaces.BY_USER_NAMESPACE:
        without.append("an own view of processes: it lists everybody's (only root may mount /proc)")
    # The kernel exempts root from RLIMIT_NPROC; a control group counts for everybody.
    counts = os.getuid() != 0 or _counts_in_a_group()
    if not counts:
        without.append("a limit on processes (root has none without a control group that counts them)")
    return Survey(kind, abi, not no_filter, counts, tuple(without))


def _namespaces() -> tuple[Namespaces | None, str]:
    why = ""
    for kind in Namespaces:
        why = _trial(lambda kind=kind: namespaces.enter(kind, Path("/usr")))  # type: ignore[misc]
        if not why:
            return kind, ""
    return None, why


def _counts_in_a_group() -> bool:
    """Whether a process can enter a group that counts it."""
    trial = f"trial-{os.getpid()}"
    group = cgroup.limit_processes(trial, 1)
    why = "" if group is None else _trial(lambda: cgroup.enter(group))
    cgroup.remove(trial)
    return group is not None and not why


def _filtered() -> None:
    kernel.forbid_new_privileges()
    seccomp.restrict()


def _trial(action: Callable[[], None]) -> str:
    """Run `action` in a child. Returns why it failed; empty where it did not."""
    child = os.fork()
    if child == 0:
        code = _FAULT_EXIT
        try:
            action()
            code = 0
        except OSError as error:
            code = error.errno or _FAULT_EXIT
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if code == 0 else os.strerror(code) if 0 < code < _FAULT_EXIT else "it failed"
