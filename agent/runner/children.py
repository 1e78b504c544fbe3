"""The processes that an arm starts: references, measurements, the passes that follow them.

Each may be ended sooner than by itself: by the arm's time limit, or because its attempt was cancelled.
"""

from __future__ import annotations

import contextlib
import os
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
    LEASE_VARIABLE,
    AttemptFile,
    Failure,
    LabelledReport,
    PassReport,
    ProcessReport,
    Report,
    is_cancelled,
    log_tail,
    report_path,
)
from agent.devices import RUNNER_COMMAND
from agent.processes import oom
from agent.processes.environment import for_runner
from agent.processes.exit_reason import exit_reason
from agent.processes.supervisor import Launch, start
from agent.runner.references import NotMade
from agent.wire.measurement import LabelledScore
from agent.wire.messages import Reason, ReasonCode, Status
from runtime.tools.reference import ReferenceKind

R = TypeVar("R", bound=Report)
P = TypeVar("P", bound=PassReport)


class FailedError(Exception):
    """A process of the arm ended it; the failure says how, `environment` what it ran in if it said so."""

    def __init__(self, failure: Failure, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.reason.text)
        self.failure = failure
        self.environment = dict(environment or {})


class CancelledError(Exception):
    """The arm's attempt was cancelled: nobody waits for its result."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of the runner. `oom_killed`: the kernel killed a process, out of memory, while it ran."""

    returncode: int
    oom_killed: bool


@dataclass(slots=True)
class Children:
    """Starts an arm's processes one after another; they die with the runner and write to the same log.

    `limit_s`: how long they may take together (None: the agent ends the runner); `used_s`: how long they
    took.
    """

    attempt: AttemptFile
    job_file: Path
    folder: Path
    limit_s: float | None = None
    used_s: float = 0.0

    @property
    def alone(self) -> bool:
        """Whether the arm is the only one of its runner."""
        return self.limit_s is None

    def measure(self, index: int, tuning: int, count: int, environment: Mapping[str, str]) -> ProcessReport:
        """Run one measuring process. Raises `FailedError` where it measured nothing."""
        who = f"process {index + 1} of {count}"
        arguments = ["--measure", str(self.job_file), str(self.folder), str(index), str(tuning)]
        report = self._reported(ProcessReport, report_path(self.folder, index), arguments, environment, who)
        if report.failure is not None:
            raise FailedError(report.failure, report.environment)
        return report

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
        process = start(Launch(command, environment, self.folder, inherited=_inherited()))
        try:
            with _killed_when_cancelled(process, self.folder), self._limited(process):
                returncode = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._log_end(process.pid)
            raise
        finally:
            self.used_s += time.monotonic() - started_s
        if returncode != 0:
            self._log_end(process.pid)
        if is_cancelled(self.folder):
            raise CancelledError
        if self.limit_s is not None and self.used_s >= self.limit_s and returncode == -signal.SIGKILL:
            raise FailedError(Failure(status=Status.FAILED, reason=_timeout(self.limit_s)))
        return Ended(returncode, oom_killed=oom.kills() > killed_before)

    def _log_end(self, pid: int) -> None:
        """Log that a process has ended which could not do so itself: the next arm's turn begins."""
        group, attempt_id = self.attempt.device.exclusion_group, self.attempt.job.attempt_id
        runlog.append(Path(self.attempt.runs_log), "end", attempt_id, group, "failed", pid)

    @contextlib.contextmanager
    def _limited(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """Kill the process once the arm's time is over."""
        if self.limit_s is None:
            yield
            return
        # The timer's thread sleeps until then; waiting with a timeout would wake up 20 times a second.
        timer = threading.Timer(max(0.0, self.limit_s - self.used_s), process.kill)
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


def _timeout(limit_s: float) -> Reason:
    text = f"not finished after {limit_s:g} s; measure less, or raise the attempt's time limit"
    return Reason(code=ReasonCode.TIMEOUT, text=text)


def _inherited() -> tuple[int, ...]:
    """The lease's descriptors. While a process of the attempt has them open, the kernel keeps the lock."""
    listed = os.environ.get(LEASE_VARIABLE)
    return () if listed is None else tuple(map(int, listed.split(",")))
