"""The frame of the processes that a runner starts: each logs its run, and a pass leaves a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from agent.attempt import runlog
from agent.attempt.files import AttemptFile, PassReport
from agent.runner.failures import failure_of
from runtime.common.durable import write_atomically
from runtime.errors import FarmRuntimeError

R = TypeVar("R", bound=PassReport)


@contextmanager
def logged(attempt: AttemptFile, what: str) -> Iterator[None]:
    """Log that this process begins and, where no error ends it, that it has ended."""
    log, group, job = Path(attempt.runs_log), attempt.device.exclusion_group, attempt.job
    runlog.append(log, "start", job.attempt_id, group, what, carrier=job.carrier)
    yield
    runlog.append(log, "end", job.attempt_id, group, what, carrier=job.carrier)


def leave_report(kind: type[R], job_file: Path, folder: Path, work: Callable[[AttemptFile, Path], R]) -> None:
    """Run a pass in this process and write its report: what `work` returns, or the failure."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    with logged(attempt, kind.name):
        try:
            report = work(attempt, folder)
        except (FarmRuntimeError, MemoryError) as error:
            report = kind(failure=failure_of(error, attempt))
        write_atomically(kind.path(folder), report.model_dump_json().encode())
