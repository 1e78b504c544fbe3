"""The processes of an arm that time no slices: references, and the passes that follow the timed blocks.

Each may be ended sooner than by itself: by the arm's time limit, or because its attempt was cancelled.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from agent.attempt import files, runlog
from agent.devices import RUNNER_COMMAND
from agent.processes import cgroup
from agent.processes.environment import for_runner
from agent.processes.exit_reason import exit_reason
from agent.processes.left_files import open_left
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.supervisor import Launch, start
from agent.runner.channel import Answer, Channel, ClosedError
from agent.runner.judge.references import NotMade
from agent.runner.turns.comparison import CancelledError, Clock, FailedError, lease_descriptors
from agent.wire.labelled import LabelledScore
from agent.wire.messages import Reason, ReasonCode, Status
from runtime.measure.reference import ReferenceKind

P = TypeVar("P", bound=files.PassReport)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of the runner. `oom_killed`: the kernel killed a process, out of memory, while it ran."""

    returncode: int
    oom_killed: bool


@dataclass(slots=True)
class Children:
    """Starts what an arm runs before and after it measures; all of it dies with the runner."""

    attempt: files.AttemptFile
    job_file: Path
    folder: Path
    clock: Clock

    def run_pass(self, kind: type[P], environment: Mapping[str, str]) -> P:
        """Run the process of a pass that follows the timed ones; how it failed is a part of its report."""
        found: list[P] = []
        ours, theirs = socket.socketpair()
        arguments = ["--pass", kind.name, str(self.job_file), str(self.folder), str(theirs.fileno())]
        channel = Channel(ours)

        def listen() -> None:
            # The process has it by now; with a copy open here, its end would not end `receive`.
            theirs.close()
            with contextlib.suppress(ClosedError, ValueError):
                while not (answer := channel.receive(Answer)).over:
                    files.write_progress(self.folder, answer.phase or "")
                found.append(channel.receive(kind))
            channel.close()

        caches = (files.caches_folder(self.folder),)
        command = self.attempt.runner_command(RUNNER_COMMAND)
        ended = self._run(kind.name, command, arguments, environment, caches, listen, (theirs.fileno(),))
        if ended.returncode != 0 or not found:
            return kind(failure=files.Failure(status=Status.FAILED, reason=self._why(ended, kind.who)))
        return found[0]

    def labelled(self, environment: Mapping[str, str]) -> LabelledScore:
        """Run the process for the labelled data, and take over its answers. Raises `FailedError`."""
        report = self.run_pass(files.LabelledReport, environment)
        if report.failure is not None or report.score is None:
            nothing = files.Failure.of(ReasonCode.RUNNER_ERROR, f"{report.who} reported nothing")
            raise FailedError(report.failure or nothing)
        answers = self.folder / files.LabelledReport.name / files.ANSWERS_FILE
        # Opened for the check alone: only a regular file with one name is moved.
        with contextlib.suppress(OSError), open_left(answers):
            answers.replace(self.folder / files.ANSWERS_FILE)
        return report.score

    def reference(self, kind: ReferenceKind, target: Path, timeout_s: float) -> NotMade | None:
        """Run one reference process; return None where it made `target`, else why it did not."""
        who = f"the reference process ({kind})"
        made = _own(self.folder, "reference") / target.name
        arguments = ["--reference", str(self.job_file), kind.value, str(made)]
        try:
            ended = self._run("reference", RUNNER_COMMAND, arguments, for_runner(), timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            return NotMade(f"{who} took more than {timeout_s:.0f} s", lasting=True)
        if ended.returncode == 0:
            with contextlib.suppress(OSError), open_left(made):
                # Only now: what another process could still write would be judged by.
                made.replace(target)
                return None
        # Ended from outside, for lack of memory or to stop the attempt: another time it may end otherwise.
        was_killed = ended.returncode in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
        return NotMade(self._why(ended, who).text, lasting=not was_killed)

    def _why(self, ended: Ended, who: str) -> Reason:
        return exit_reason(ended.returncode, who, files.log_tail(self.folder), oom_killed=ended.oom_killed)

    def _run(
        self,
        what: str,
        command: Sequence[str],
        arguments: Sequence[str],
        environment: Mapping[str, str],
        writable: Sequence[Path] = (),
        listen: Callable[[], None] = lambda: None,
        inherited: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> Ended:
        """Run one process, and what it starts, to its end; it may write `writable` and a folder of its own.

        Raises `FailedError` at the arm's time limit, `CancelledError`.
        """
        own = _own(self.folder, what)
        launch = Launch(
            [*command, *arguments],
            {**environment, "TMPDIR": str(own)},
            self.folder,
            inherited=(*inherited, *lease_descriptors()),
            own_group=True,
        )
        # The kernel counts for the whole control group; a rise while the process ran is attributed to it.
        killed_before = cgroup.oom_kills()
        started_s = time.monotonic()
        process = start(bounded(launch, self.attempt, own, *writable))
        self._log("start", what, process.pid)
        # What it leaves running may hold its end of the pair, on which `listen` would wait for ever.
        threading.Thread(target=_end_group, args=(process.pid,), daemon=True).start()
        try:
            with _killed_when_cancelled(process, self.folder), self._limited(process):
                listen()
                returncode = process.wait(timeout_s)
        finally:
            # What it left running must not run in the next arm's turn, nor write what is read from now on.
            _kill(process)
            process.wait()
            self._log("end", what, process.pid)
            self.clock.used_s += time.monotonic() - started_s
        if files.is_cancelled(self.folder):
            raise CancelledError
        # The timer killed it: by now `used_s` has reached the limit.
        if self.clock.left_s == 0.0 and returncode == -signal.SIGKILL:
            raise FailedError(self.clock.timeout())
        return Ended(returncode, oom_killed=cgroup.oom_kills() > killed_before)

    def _log(self, event: runlog.Event, what: str, pid: int) -> None:
        """Log the begin or the end of a process: it writes no log itself."""
        log, group, job = self.folder / runlog.FILE, self.attempt.device.exclusion_group, self.attempt.job
        runlog.append(log, event, job.attempt_id, group, what, pid, carrier=job.carrier)

    @contextlib.contextmanager
    def _limited(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Kill the process once the arm's time is over."""
        left_s = self.clock.left_s
        if left_s is None:
            yield
            return
        # The timer's thread sleeps until then; waiting with a timeout would wake up 20 times a second.
        timer = threading.Timer(left_s, _kill, (process,))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def bounded(launch: Launch, attempt: files.AttemptFile, *own: Path) -> Launch:
    """Put a launch within a boundary of its own: no process of an arm can touch another's files."""
    if attempt.writable is None:
        return launch
    return replace(launch, inner=InnerBoundary(own, chosen=tuple(map(Path, attempt.writable))))


def _own(folder: Path, what: str) -> Path:
    """Make the folder in which a process beside the timed ones may write."""
    own = folder / what
    # A reference asks twice: for its target, and for its process.
    own.mkdir(exist_ok=True)
    return own


def _end_group(leader: int) -> None:
    """Wait until a child has ended, which somebody else reaps, and kill what is left of its group."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError, PermissionError):
        os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)
        os.killpg(leader, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with what it started, as far as that is still in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _killed_when_cancelled(process: subprocess.Popen[bytes], folder: Path) -> Iterator[None]:
    """Kill the process where the agent cancels its arm, or has done so already."""

    def on_signal(_number: int = 0, _frame: object = None) -> None:
        if files.is_cancelled(folder):
            _kill(process)

    before = signal.signal(files.CANCEL_SIGNAL, on_signal)
    # The signal may have come before there was anybody to receive it.
    on_signal()
    try:
        yield
    finally:
        signal.signal(files.CANCEL_SIGNAL, before)
