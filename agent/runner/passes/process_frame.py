"""The frame of a pass: its process tells its phases and sends its report over a pair of sockets.

It writes no file that another process reads: what follows the timed blocks of one arm runs beside the
folders of its competitors.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from agent.attempt.files import AttemptFile, PassReport
from agent.runner.channel import Answer, Channel, ClosedError
from agent.runner.failures import failure_of
from agent.runner.passes.telemetry import Telemetry
from agent.wire.bounded import Wire
from agent.wire.measurement import Measurement
from agent.wire.passes import PASSES
from runtime.errors import FarmRuntimeError

R = TypeVar("R", bound=PassReport)
Tell = Callable[[str], None]
"""Tells the phase of a process."""


@dataclass(frozen=True, slots=True)
class PassProcess(Generic[R]):
    """The process of a pass. `work`: what it does, in its own process, with what the plan asks of it."""

    report: type[R]
    work: Callable[[Any, AttemptFile, Path, Tell], R]


@dataclass(frozen=True, slots=True)
class Found(Generic[R]):
    """The report of a pass, and what its figures are made with besides. `asked`: the plan's of this pass."""

    report: R
    asked: Any
    attempt: AttemptFile
    measurement: Measurement
    sensors: Telemetry


@dataclass(frozen=True, slots=True)
class FiguresPass(PassProcess[R]):
    """A pass of `agent.wire.passes`. `figures`: the fields of the measurement that its report gives.
    `even_if_wrong`: it runs where the output was wrong, too.
    """

    figures: Callable[[Found[R]], Mapping[str, Wire | None]]
    even_if_wrong: bool = False


def pass_of(name: str) -> Any:
    """Return the `PassProcess` of a pass: `PASS` of its module, which is imported only now."""
    return import_module(f"{__package__}.{name}").PASS


def run_pass(name: str, job_file: Path, folder: Path, descriptor: int) -> None:
    """Run a pass in this process and send its report: what its work returns, or the failure."""
    process: PassProcess[PassReport] = pass_of(name)
    attempt = AttemptFile.model_validate_json(job_file.read_bytes())
    plan, channel = attempt.job.plan, Channel.of_descriptor(descriptor)
    # Labelled data is none of `PASSES`: it gives a score, and no figures of its own.
    asked = next((one.of(plan) for one in PASSES if one.name == name), plan.labelled)
    # Where the deciding process has ended, nobody waits for a report.
    with suppress(ClosedError):
        try:
            report = process.work(asked, attempt, folder, lambda phase: channel.send(Answer(phase=phase)))
        except (FarmRuntimeError, MemoryError) as error:
            report = process.report(failure=failure_of(error, attempt))
        channel.send(Answer(over=True))
        channel.send(report)
