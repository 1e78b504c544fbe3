"""The processes of an arm that time no slices: references, and the passes that follow the timed blocks.

Each may be ended sooner than by itself: by the arm's time limit, or because its attempt was cancelled.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.attempt import runlog
from agent.attempt.files import (
    CANCEL_SIGNAL,
    AttemptFile,
    Failure,
    LabelledReport,
    PassReport,
    Report,
    is_cancelled,
    log_tail,
)
from agent.devices import RUNNER_COMMAND
from agent.processes import oom
from agent.processes.environment import for_runner
from agent.processes.exit_reason import exit_reason
from agent.processes.supervisor import Launch, start
from agent.runner.judge.references import NotMade
from agent.runner.turns.ending import CancelledError, Clock, FailedError, lease_descriptors
from agent.wire.measurement import LabelledScore
from agent.wire.messages import Reason, ReasonCode, Status
from runtime.measure.reference import ReferenceKind

R = TypeVar("R", bound=Report)
P = TypeVar("P", bound=PassReport)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of the runner. `oom_killed`: the kernel killed a process, out of memory, while it ran."""

    returncode: int
    oom_killed: bool


@dataclass(slots=True)
class Children:
    """Starts what an arm runs before and after it measures; all of it dies with the runner."""

    attempt: AttemptFile
    job_file: Path
    folder: Path
    clock: Clock

    def run_pass(self, kind: type[P], environment: Mapping[str, str]) -> P:
        """Run the process of a pass that follows the timed ones; how it failed is a part of its report."""
        arguments = [f"--{kind.name}", str(self.job_file), str(self.folder)]
        return self._reported(kind, kind.path(self.folder), arguments, environment, kind.who)

    def labelled(self, environment: Mapping[str, str]) -> LabelledScore:
        """Run the process for the labelled data. Raises `FailedError`."""
        report = self.run_pass(LabelledReport, environment)
        if report.failure is not None or report.score is None:
            nothing = Reason(code=ReasonCode.RUNNER_ERROR, text=f"{report.who} reported nothing")
            raise FailedError(report.failure or Failure(status=Status.FAILED, reason=nothing))
        return report.score

    def reference(self, kind: ReferenceKind, target: Path, timeout_s: float) -> NotMade | None:
        """Run one reference process; return None where it wrote `target`, else why it did not."""
        who = f"the reference process ({kind})"
        try:
            ended = self._run(
                ["--reference", str(self.job_file), kind.value, str(target)], for_runner(), timeout_s
            )
        except subprocess.TimeoutExpired:
            return NotMade(f"{who} took more than {timeout_s:.0f} s", lasting=True)
        if ended.returncode == 0 and target.exists():
            return None
        # Ended from outside, for lack of memory or to stop the attempt: another time it may end otherwise.
        was_killed = ended.returncode in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
        return NotMade(self._why(ended, who).text, lasting=not was_killed)

    def _reported(
        self, kind: type[R], path: Path, arguments: Sequence[str], environment: Mapping[str, str], who: str
    ) -> R:
        """Run one process and read the report that it leaves; one that leaves none has failed."""
        ended = self._run(arguments, environment)
        if ended.returncode != 0 or not path.exists():
            return kind(failure=Failure(status=Status.FAILED, reason=self._why(ended, who)))
        return kind.model_validate_json(path.read_bytes())

    def _why(self, ended: Ended, who: str) -> Reason:
        return exit_reason(ended.returncode, who, log_tail(self.folder), oom_killed=ended.oom_killed)

    def _run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float | None = None
    ) -> Ended:
        """Run one process to its end. Raises `FailedError` at the arm's time limit, `CancelledError`."""
        command = [*RUNNER_COMMAND, *arguments]
        # The kernel counts for the whole control group; a rise while the process ran is attributed to it.
        killed_before = oom.kills()
        started_s = time.monotonic()
        process = start(Launch(command, environment, self.folder, inherited=lease_descriptors()))
        try:
            with _killed_when_cancelled(process, self.folder), self._limited(process):
                returncode = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._log_end(process.pid)
            raise
        finally:
            self.clock.used_s += time.monotonic() - started_s
        if returncode != 0:
            self._log_end(process.pid)
        if is_cancelled(self.folder):
            raise CancelledError
        if self.clock.left_s == 0.0 and returncode == -signal.SIGKILL:
            raise FailedError(self.clock.timeout())
        return Ended(returncode, oom_killed=oom.kills() > killed_before)

    def _log_end(self, pid: int) -> None:
        """Log that a process has ended which could not do so itself: the next arm's turn begins."""
        group, attempt_id = self.attempt.device.exclusion_group, self.attempt.job.attempt_id
        runlog.append(Path(self.attempt.runs_log), "end", attempt_id, group, "failed", pid)

    @contextlib.contextmanager
    def _limited(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Kill the process once the arm's time is over."""
        left_s = self.clock.left_s
        if left_s is None:
            yield
            return
        # The timer's thread sleeps until then; waiting with a timeout would wake up 20 times a second.
        timer = threading.Timer(left_s, process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextlib.contextmanager
def _killed_when_cancelled(process: subprocess.Popen[bytes], folder: Path) -> Iterator[None]:
    """Kill the process where the agent cancels its arm, or has done so already."""

    def on_signal(_number: int = 0, _frame: object = None) -> None:
        if is_cancelled(folder):
            process.kill()

    before = signal.signal(CANCEL_SIGNAL, on_signal)
    # The signal may have come before there was anybody to receive it.
    on_signal()
    try:
        yield
    finally:
        signal.signal(CANCEL_SIGNAL, before)
