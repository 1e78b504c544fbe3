"""Runs the process that times sequences of steps after everything else is timed, and reads its report."""

from pathlib import Path

from agent.attempt.files import AttemptFile, PossiblePassReport
from agent.runner.opening import as_timed
from agent.runner.passes.process_frame import FiguresPass, Tell
from agent.wire.bounded import Integer
from agent.wire.passes import Steps
from runtime.measure.sequence import SEQUENCES, run_sequences


class StepsReport(PossiblePassReport):
    """The report of the process that timed sequences of steps."""

    name = "steps"
    who = "the process of steps"
    first_ns: Integer = 0
    step_ns: Integer = 0


def _timed(steps: int, attempt: AttemptFile, folder: Path, tell: Tell) -> StepsReport:
    tell(f"{SEQUENCES} sequences of {steps} steps")
    return StepsReport.like(run_sequences(as_timed(attempt, folder), steps))


def steps_of(report: StepsReport, count: int) -> Steps:
    """Build the pass's result: its times, or why there are none."""
    if report.failure is not None or not report.first_ns or not report.step_ns:
        return Steps(count=count, missing=dict.fromkeys(("first", "step"), report.why))
    return Steps(count=count, first=report.first_ns / 1e6, step=report.step_ns / 1e6)


PASS = FiguresPass(StepsReport, _timed, lambda found: {"steps": steps_of(found.report, found.asked)})
