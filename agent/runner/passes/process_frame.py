"""The frame of a pass: its process tells its phases and sends its report over a pair of sockets.

It writes no file that another process reads: what follows the timed blocks of one arm runs beside the
folders of its competitors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from agent.attempt.files import AttemptFile, PassReport
from agent.runner.channel import Answer, Channel, ClosedError
from agent.runner.failures import failure_of
from runtime.errors import FarmRuntimeError

R = TypeVar("R", bound=PassReport)
Tell = Callable[[str], None]
"""Tells the phase of a process."""


def send_report(
    kind: type[R],
    job_file: Path,
    folder: Path,
    descriptor: int,
    work: Callable[[AttemptFile, Path, Tell], R],
) -> None:
    """Run a pass in this process and send its report: what `work` returns, or the failure."""
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    channel = Channel.of_descriptor(descriptor)
    with suppress(ClosedError):
        try:
            report = work(attempt, folder, lambda phase: channel.send(Answer(phase=phase)))
        except (FarmRuntimeError, MemoryError) as error:
            report = kind(failure=failure_of(error, attempt))
        channel.send(Answer(over=True))
        channel.send(report)
