"""Runs the sustained-load process after everything is timed, and reads its report."""

from pathlib import Path

from agent.attempt.files import AttemptFile, PassReport
from agent.runner.opening import as_timed
from agent.runner.passes.process_frame import FiguresPass, Tell
from agent.runner.passes.telemetry import Telemetry
from agent.wire.bounded import Count, Integer, Wire
from agent.wire.passes import Sustained, SustainedSlice
from runtime.measure.sustained import sustain


class SlicedRuns(Wire):
    """A part of a sustained pass: its begin by CLOCK_MONOTONIC, its invokes and their median."""

    begin_ns: Integer
    seconds: float
    runs: Count
    p50_ns: Integer


class SustainedReport(PassReport):
    """The report of the process that invoked without a pause."""

    name = "sustained"
    who = "the sustained process"
    slices: tuple[SlicedRuns, ...] = ()


def _sliced(asked_s: float, attempt: AttemptFile, folder: Path, tell: Tell) -> SustainedReport:
    found = sustain(
        as_timed(attempt, folder),
        asked_s,
        on_slice=lambda number, count: tell(f"sustained: part {number} of {count}"),
    )
    return SustainedReport(slices=tuple(map(SlicedRuns.like, found)))


def sustained(report: SustainedReport, attempt: AttemptFile, sensors: Telemetry) -> Sustained:
    """Build the pass's result, with the clock in each slice if a sensor reads one."""
    asked_s = attempt.job.plan.sustained_s or 0.0
    if report.failure is not None or not report.slices:
        return Sustained(seconds=asked_s, note=report.why)
    windows = [(s.begin_ns, s.begin_ns + int(1e9 * s.seconds)) for s in report.slices]
    clocks, why_none = sensors.clocks(attempt.device, windows)
    first, last = report.slices[0], report.slices[-1]
    slices = tuple(
        SustainedSlice(
            from_s=(one.begin_ns - first.begin_ns) / 1e9,
            p50_ms=one.p50_ns / 1e6,
            runs=one.runs,
            clock_mhz=mhz,
        )
        for one, mhz in zip(report.slices, clocks, strict=True)
    )
    # A clock that is too coarse may tell a median of 0.
    return Sustained(
        seconds=asked_s, slices=slices, end_over_start=last.p50_ns / max(1, first.p50_ns), clock_note=why_none
    )


PASS = FiguresPass(
    SustainedReport,
    _sliced,
    lambda found: {"sustained": sustained(found.report, found.attempt, found.sensors)},
)
