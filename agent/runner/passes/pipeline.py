"""Runs the process that pre-processes frames beside the model's runs, and reads its report."""

from pathlib import Path
from typing import Final

from agent.attempt.files import AttemptFile, PossiblePassReport
from agent.runner.opening import as_timed
from agent.runner.passes.process_frame import FiguresPass, Tell
from agent.wire.bounded import Count, Integer, Wire
from agent.wire.passes import Pipeline, PipelinePlan
from runtime.measure import pipeline as tool

_SERIAL: Final = ("serial_per_second", "preprocess_ms", "run_ms")
_OVERLAPPED: Final = ("per_second", "gain")


class Frames(Wire):
    """One way's frames, as `runtime.measure.pipeline.Frames` counts them."""

    count: Count = 0
    wall_ns: Integer = 0
    preprocess_ns: Integer = 0


class PipelineReport(PossiblePassReport):
    """The report of the process."""

    name = "pipeline"
    who = "the process of the pipeline"
    serial: Frames = Frames()
    overlapped: Frames = Frames()


def _preprocessing(asked: PipelinePlan) -> str:
    height, width = tool.FRAME
    return f"resize {width}x{height}" if asked.cpu_ms is None else f"{asked.cpu_ms:g} ms of a processor"


def _timed(asked: PipelinePlan, attempt: AttemptFile, folder: Path, tell: Tell) -> PipelineReport:
    tell(f"pipeline: {_preprocessing(asked)} beside each run")
    found = tool.pipeline(as_timed(attempt, folder), cpu_ms=asked.cpu_ms, seconds=asked.seconds)
    serial, overlapped = map(Frames.like, (found.serial, found.overlapped))
    return PipelineReport(serial=serial, overlapped=overlapped, why_not=found.why_not)


def pipeline_of(report: PipelineReport, asked: PipelinePlan) -> Pipeline:
    """Build the pass's result: the rates, or why one is missing."""
    serial, overlapped = report.serial, report.overlapped
    made = Pipeline(preprocess=_preprocessing(asked))
    if serial.count == 0 or serial.wall_ns <= 0:
        return made.model_copy(update={"missing": dict.fromkeys((*_OVERLAPPED, *_SERIAL), report.why)})
    alone = 1e9 * serial.count / serial.wall_ns
    figures = {
        "serial_per_second": alone,
        "preprocess_ms": serial.preprocess_ns / serial.count / 1e6,
        "run_ms": (serial.wall_ns - serial.preprocess_ns) / serial.count / 1e6,
    }
    if overlapped.count == 0 or overlapped.wall_ns <= 0:
        return made.model_copy(update=figures | {"missing": dict.fromkeys(_OVERLAPPED, report.why)})
    rate = 1e9 * overlapped.count / overlapped.wall_ns
    return made.model_copy(update=figures | {"per_second": rate, "gain": rate / alone})


PASS = FiguresPass(PipelineReport, _timed, lambda found: {"pipeline": pipeline_of(found.report, found.asked)})
