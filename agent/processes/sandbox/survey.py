"""Surveys the boundaries that kernel and rights allow: each is tried in a process of its own."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from agent.processes import cgroup
from agent.processes.sandbox import bpf, kernel, landlock, namespaces, seccomp, view
from agent.processes.sandbox.limits import Users
from agent.processes.sandbox.namespaces import Namespaces
from agent.wire.messages import SANDBOX_SEES_PROCESSES

_FAULT_EXIT: Final = 255
"""Exit code of a trial that failed without an error of the kernel; other codes are its errors' numbers."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The available boundaries. `without`: those that are left open, each with the kernel's reason."""

    namespaces: Namespaces | None
    landlock_abi: int
    seccomp: bool
    own_user: bool
    counts_processes: bool
    without: tuple[str, ...]


@cache
def survey(users: Users | None = None) -> Survey:
    """Try every boundary. Call it from a process with one thread."""
    without = []
    kind, why = _namespaces()
    own_user = users is not None and kind is Namespaces.DIRECT
    if users is not None and kind is Namespaces.DIRECT and (refused := _as_another(users.first)):
        own_user = False
        without.append(f"a user of its own (no mounts for another user: {refused}; they need Linux 5.12)")
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
        without.append(SANDBOX_SEES_PROCESSES)
    # The kernel exempts root from RLIMIT_NPROC; a control group counts for everybody.
    counts = own_user or os.getuid() != 0 or _counts_in_a_group()
    if not counts:
        without.append("a limit on processes (root has none without a control group that counts them)")
    return Survey(kind, abi, not no_filter, own_user, counts, tuple(without))


def _namespaces() -> tuple[Namespaces | None, str]:
    why = ""
    for kind in Namespaces:
        # Any folder that every host has: it becomes /tmp in the trial's own namespace alone.
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


def _as_another(user: int) -> str:
    """Return why a process cannot work as another user in a folder of this one; empty where it can."""
    with tempfile.TemporaryDirectory() as name:

        def work() -> None:
            rules = [(Path(name), landlock.WRITE)]
            namespaces.enter(Namespaces.DIRECT, None, partial(view.enter, rules, user))
            kernel.drop_capabilities(user)
            Path(name, "made").write_bytes(b"")

        return _trial(work)


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
            # Exit handlers and unwritten buffers are the parent's.
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if code == 0 else os.strerror(code) if 0 < code < _FAULT_EXIT else "it failed"
