"""Start, stop and reap processes: each runner leads a session of its own and leaves no process behind."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agent.processes import cgroup
from agent.processes.descendants import ATTEMPT_VARIABLE, new_mark, processes, processes_of
from agent.processes.left_files import LOG_FILE
from agent.processes.sandbox import kernel
from agent.processes.sandbox.boundary import Boundary
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.sandbox.limits import most_processes

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2), from linux/prctl.h: the signal that this process gets when its parent dies."""
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Option of prctl(2), from linux/prctl.h: orphaned descendants become children of this process."""
REAP_LIMIT_S: Final = 10.0
"""Seconds of trying after which processes count as not killable: a driver can hold one in the kernel. Smaller
could give up on one that frees gigabytes; larger blocks the agent's loop, and its heartbeats, for longer."""
_REAP_POLL_S: Final = 0.01
"""Seconds between two checks for processes that are left."""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """The way to start a process. `memory_limit_bytes` bounds its address space (RLIMIT_AS); it starts in the
    control groups `group` and `counted_group`, within `boundary` and within `inner`. `own_group`: it leads a
    process group, which its parent can stop and continue as a whole. `expendable`: when memory runs out, the
    kernel kills it before its parent.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    inherited: Sequence[int] = ()
    new_session: bool = False
    own_group: bool = False
    memory_limit_bytes: int | None = None
    group: Path | None = None
    counted_group: Path | None = None
    boundary: Boundary | None = None
    inner: InnerBoundary | None = None
    expendable: bool = False


def start(launch: Launch) -> subprocess.Popen[bytes]:
    """Start a process that is killed with this one, dumps no core and writes to `<folder>/log`.

    Call it from the main thread: the kernel kills the child with the thread that made it.
    Raises `OSError` where the command cannot be run.
    """
    parent = os.getpid()

    def in_child() -> None:
        die_with(parent)
        # A runner listens to it only while a process of an arm runs; by default it would end the runner.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # Before exec: every process that the runner ever starts is born in the group and cannot be missed.
        if launch.group is not None:
            # Without the group its processes are still found by session, descent and mark.
            with contextlib.suppress(OSError):
                cgroup.enter(launch.group)
        if launch.counted_group is not None:
            # Without this one nothing counts them, although the result says so.
            with kernel.failure_in_log():
                cgroup.enter(launch.counted_group)
        if launch.expendable and sys.platform == "linux":
            cgroup.raise_oom_score()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if launch.memory_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (launch.memory_limit_bytes, launch.memory_limit_bytes))
        if launch.boundary is not None:
            launch.boundary.enter()
            # The kernel forgets it with a change of the user.
            die_with(parent)
        if launch.inner is not None:
            launch.inner.enter()

    # Appending: all processes of an arm write to one log, and would overwrite each other's lines.
    with (launch.folder / LOG_FILE).open("ab") as log:
        return subprocess.Popen(
            list(launch.command),
            env=dict(launch.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=tuple(launch.inherited),
            start_new_session=launch.new_session,
            process_group=0 if launch.own_group else None,
            preexec_fn=in_child,  # noqa: PLW1509  # this process has one thread
        )


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies.

    macOS has no such call: there, the next agent finds and ends what a killed one left.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before prctl took effect: then no signal will come.
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Make orphans of runners children of this process, to be found and reaped; macOS has no such call.

    Raises `OSError`.
    """
    if sys.platform == "linux" and _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


@dataclass(slots=True)
class Runner:
    """The runner process of one attempt; its processes have the `mark`."""

    attempt_id: str
    process: subprocess.Popen[bytes]
    mark: str = ""

    @classmethod
    def start(cls, attempt_id: str, launch: Launch) -> "Runner":
        """Start the runner as leader of a new session, marked with its attempt, in a control group where that
        is possible. Raises `OSError`.
        """
        mark = new_mark(attempt_id)
        environment = {**launch.environment, ATTEMPT_VARIABLE: mark}
        process = start(
            replace(
                launch,
                environment=environment,
                new_session=True,
                group=cgroup.create(attempt_id),
                # The facts of a sandbox promise this limit; without one nothing does.
                counted_group=cgroup.limit_processes(attempt_id, most_processes())
                if launch.boundary
                else None,
                expendable=True,
            )
        )
        return cls(attempt_id, process, mark)

    def poll(self) -> int | None:
        """Return the runner's exit code (negative: signal); None while it lives.

        The dead runner is left a zombie until `reap`: until then the kernel cannot give its id, which is
        also its session's, to another process.
        """
        if self.process.returncode is not None:
            return self.process.returncode
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def terminate(self) -> None:
        """Ask the whole session to end (SIGTERM): every process group of it, also one that is stopped."""
        groups = {stat.group for stat in processes() if stat.session == self.process.pid}
        for group in groups | {self.process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGTERM)
                # A process that is stopped takes notice of no other signal but SIGKILL.
                os.killpg(group, signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the runner alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill the runner, its session, its descendants and processes that left them."""
        cgroup.kill(self.attempt_id)
        _kill_all(processes_of(self.attempt_id, self.process.pid))

    def reap(self) -> set[int]:
        """End the runner and all processes of its attempt; reap it. Returns the ids of those still alive."""
        left = reap(self.attempt_id, self.process.pid)
        if self.process.pid not in left:
            self.process.wait()
        return left


def reap(attempt_id: str, runner_pid: int | None = None) -> set[int]:
    """Kill every process of an attempt until none is left. Returns the ids that live after `REAP_LIMIT_S`."""
    deadline = time.monotonic() + REAP_LIMIT_S
    cgroup.kill(attempt_id)
    while remaining := processes_of(attempt_id, runner_pid):
        if time.monotonic() > deadline:
            return remaining
        # In every turn anew: a process that was being forked was not in the last list.
        _kill_all(remaining)
        time.sleep(_REAP_POLL_S)
        # Not the runner: its `Popen` waits for it, and would find no exit code any more.
        _collect(remaining - {runner_pid or 0})
    cgroup.remove(attempt_id)
    return set()


def kill_strays(pids: set[int]) -> None:
    """Kill and reap adopted orphans that belong to no attempt."""
    _kill_all(pids)
    _collect(pids)


def _kill_all(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _collect(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
