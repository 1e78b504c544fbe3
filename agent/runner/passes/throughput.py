"""Runs the process that keeps several runs in flight after everything is timed, and reads its report."""

from __future__ import annotations

from pathlib import Path

from agent.attempt.files import AttemptFile, ThroughputReport
from agent.runner.opening import input_rules, opener_as_timed
from agent.runner.passes.process_frame import Tell, send_report
from agent.wire.measurement import Throughput
from agent.wire.plan import ThroughputPlan
from runtime.measure import throughput as tool


def throughput_process(job_file: Path, folder: Path, descriptor: int) -> None:
    """Run the pass in this process and send: its count or the failure."""
    send_report(ThroughputReport, job_file, folder, descriptor, _counted)


def _counted(attempt: AttemptFile, folder: Path, tell: Tell) -> ThroughputReport:
    job = attempt.job
    assert job.plan.throughput is not None
    tell(f"throughput: {job.plan.throughput.in_flight} in flight")
    found = tool.throughput(
        opener_as_timed(attempt, folder),
        attempt.model_path,
        job.model_sha256,
        job.plan.throughput.in_flight,
        job.plan.throughput.seconds,
        input_rules(attempt),
    )
    return ThroughputReport(runs=found.runs, wall_ns=found.wall_ns, why_not=found.why_not)


def throughput(report: ThroughputReport, asked: ThroughputPlan) -> Throughput:
    """Build the pass's result: the rate, or why there is none."""
    why = report.why_not if report.failure is None else report.failure.reason.text
    if why or not report.runs or report.wall_ns <= 0:
        missing = dict.fromkeys(("seconds", "runs", "per_second"), why or "it reported nothing")
        return Throughput(in_flight=asked.in_flight, missing=missing)
    seconds = report.wall_ns / 1e9
    return Throughput(
        in_flight=asked.in_flight, seconds=seconds, runs=report.runs, per_second=report.runs / seconds
    )
