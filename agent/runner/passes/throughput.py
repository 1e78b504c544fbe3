"""Runs the process that keeps several runs in flight after everything is timed, and reads its report."""

from pathlib import Path

from agent.attempt.files import AttemptFile, PossiblePassReport
from agent.runner.opening import as_timed
from agent.runner.passes.process_frame import FiguresPass, Tell
from agent.wire.bounded import Count, Integer
from agent.wire.passes import Throughput, ThroughputPlan
from runtime.measure import throughput as tool


class ThroughputReport(PossiblePassReport):
    """The report of the process that kept several runs in flight."""

    name = "throughput"
    who = "the throughput process"
    runs: Count = 0
    wall_ns: Integer = 0


def _counted(asked: ThroughputPlan, attempt: AttemptFile, folder: Path, tell: Tell) -> ThroughputReport:
    tell(f"throughput: {asked.in_flight} in flight")
    return ThroughputReport.like(
        tool.throughput(as_timed(attempt, folder), in_flight=asked.in_flight, seconds=asked.seconds)
    )


def throughput(report: ThroughputReport, asked: ThroughputPlan) -> Throughput:
    """Build the pass's result: the rate, or why there is none."""
    if report.failure is not None or not report.runs or report.wall_ns <= 0:
        missing = dict.fromkeys(("seconds", "runs", "per_second"), report.why)
        return Throughput(in_flight=asked.in_flight, missing=missing)
    seconds = report.wall_ns / 1e9
    return Throughput(
        in_flight=asked.in_flight, seconds=seconds, runs=report.runs, per_second=report.runs / seconds
    )


PASS = FiguresPass(
    ThroughputReport, _counted, lambda found: {"throughput": throughput(found.report, found.asked)}
)
