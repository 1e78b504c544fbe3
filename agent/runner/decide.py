"""The runner that decides: starts the processes that measure, judges and sums up. It measures nothing itself.

Process 0 gets fresh program caches (cold), and its outputs are judged; the others share what it filled (warm)
and are timed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.attempt.files import (
    LABELLED_FILE,
    LEASE_VARIABLE,
    RESULT_FILE,
    SAMPLES_FILE,
    AttemptFile,
    Failure,
    LabelledReport,
    ProcessReport,
    RunnerResult,
    log_tail,
    report_path,
    write_atomically,
    write_progress,
)
from agent.devices import RUNNER_COMMAND
from agent.processes import oom
from agent.processes.environment import for_runner
from agent.processes.exit_reason import exit_reason
from agent.processes.supervisor import Launch, start
from agent.runner.environment import choose_cpus, core_siblings, measuring_environment
from agent.runner.measure import failure_of
from agent.runner.references import NotMade, find_references
from agent.runner.verdict import concluded, not_measured, scored
from agent.wire.messages import LabelledScore, Reason, ReasonCode, Status
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DelegateError
from runtime.tools.reference import ReferenceKind


class FailedError(Exception):
    """A process of the attempt ended it; the failure says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason.text)
        self.failure = failure


def run_attempt(job_file: Path, folder: Path) -> None:
    """Run the attempt of `job_file` and write `result.json` (and `samples.json`) into `folder`."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    try:
        result = _run(attempt, job_file, folder)
    except FailedError as error:
        result = not_measured(error.failure)
    write_atomically(folder / RESULT_FILE, result.model_dump_json().encode())


def _run(attempt: AttemptFile, job_file: Path, folder: Path) -> RunnerResult:
    """Reference, measuring processes, verdict. Raises `FailedError`."""
    threads = _take_cpus(attempt, _checked_descriptor(attempt))
    children = Children(job_file, folder)
    references = find_references(attempt, children.folder, children.reference)
    environment = measuring_environment(for_runner(), folder / "caches", threads)
    count = 1 + attempt.job.plan.processes
    reports = [children.measure(index, count, environment) for index in range(count)]
    write_progress(folder, "judging")
    result = concluded(attempt, reports, folder, references)
    if attempt.job.plan.labelled is not None:
        result = scored(result, children.labelled(environment))
    return result.model_copy(update={"samples_sha256": _write_samples(folder, reports)})


def _checked_descriptor(attempt: AttemptFile) -> DelegateDescriptor:
    """The descriptor of the job's delegate, once it has accepted the job's options.

    The farm checked them against the descriptor that is installed where the campaign was submitted; another
    version may be installed here. Raises `FailedError`.
    """
    try:
        descriptor = delegate_descriptor(attempt.job.delegate_kind)
        # The count of threads is judged by `_take_cpus`, which knows this host's CPUs.
        descriptor.parse({k: v for k, v in attempt.job.delegate_options.items() if k != "threads"})
    except DelegateError as error:
        raise FailedError(failure_of(error, attempt)) from error
    return descriptor


def _take_cpus(attempt: AttemptFile, descriptor: DelegateDescriptor) -> int:
    """Bind this process, and so its children, to the CPUs of the job's `threads`.

    Without that option the delegate's descriptor sets the count; without that, all CPUs are used.
    """
    allowed = sorted(os.sched_getaffinity(0))
    declared = descriptor.options.get("threads")
    default = None if declared is None else declared.default
    wanted = attempt.job.delegate_options.get("threads", len(allowed) if default is None else default)
    try:
        cpus = choose_cpus(allowed, core_siblings(allowed), int(wanted))
    except ValueError as error:
        # Not a failure of the model: `no_device` is not reused, so the cell runs again with more CPUs.
        reason = Reason(code=ReasonCode.NO_DEVICE, text=str(error))
        raise FailedError(Failure(status=Status.UNSUPPORTED, reason=reason)) from error
    os.sched_setaffinity(0, cpus)
    return len(cpus)


@dataclass(frozen=True, slots=True)
class Ended:
    """A process of the runner. `oom_killed`: the kernel killed a process, out of memory, while it ran."""

    returncode: int
    oom_killed: bool


@dataclass(frozen=True, slots=True)
class Children:
    """Starts the runner's processes one after another; they die with it and write to the same log."""

    job_file: Path
    folder: Path

    def measure(self, index: int, count: int, environment: Mapping[str, str]) -> ProcessReport:
        """Run one measuring process. Raises `FailedError` where it measured nothing."""
        who = f"process {index + 1} of {count}"
        ended = self._run(["--measure", str(self.job_file), str(self.folder), str(index)], environment)
        path = report_path(self.folder, index)
        if ended.returncode != 0 or not path.exists():
            reason = self._why(ended, who)
            raise FailedError(Failure(status=Status.FAILED, reason=reason))
        report = ProcessReport.model_validate_json(path.read_bytes())
        if report.failure is not None:
            raise FailedError(report.failure)
        return report

    def labelled(self, environment: Mapping[str, str]) -> LabelledScore:
        """Run the process for the labelled data. Raises `FailedError`."""
        ended = self._run(["--labelled", str(self.job_file), str(self.folder)], environment)
        path = self.folder / LABELLED_FILE
        if ended.returncode != 0 or not path.exists():
            reason = self._why(ended, "the process on labelled data")
            raise FailedError(Failure(status=Status.FAILED, reason=reason))
        report = LabelledReport.model_validate_json(path.read_bytes())
        if report.failure is not None or report.score is None:
            nothing = Reason(
                code=ReasonCode.RUNNER_ERROR, text="the process on labelled data reported nothing"
            )
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

    def _why(self, ended: Ended, who: str) -> Reason:
        return exit_reason(ended.returncode, who, log_tail(self.folder), oom_killed=ended.oom_killed)

    def _run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float | None = None
    ) -> Ended:
        command = [*RUNNER_COMMAND, *arguments]
        # The kernel counts for the whole control group; a rise while the process ran is attributed to it.
        killed_before = oom.kills()
        process = start(Launch(command, environment, self.folder, inherited=_inherited()))
        try:
            returncode = process.wait(timeout_s)
            return Ended(returncode, oom_killed=oom.kills() > killed_before)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _inherited() -> tuple[int, ...]:
    """The lease's descriptors. While a process of the attempt has them open, the kernel keeps the lock."""
    listed = os.environ.get(LEASE_VARIABLE)
    return () if listed is None else tuple(map(int, listed.split(",")))


def _write_samples(folder: Path, reports: Sequence[ProcessReport]) -> str:
    """All raw samples as one JSON list; returns the sha256 of the file."""
    samples = [report.samples.model_dump(mode="json") for report in reports if report.samples is not None]
    data = json.dumps(samples, separators=(",", ":")).encode()
    write_atomically(folder / SAMPLES_FILE, data)
    return hashlib.sha256(data).hexdigest()
