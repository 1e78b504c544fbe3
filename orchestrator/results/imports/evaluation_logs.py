"""Makes results of what LiteRT's evaluation tools print (`runtime.common.evaluation_log`)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Accuracy, Measurement
from orchestrator.results.imports.reports import NOT_JUDGED, Figures, ImportedResult, NotReadableError
from runtime.common import evaluation_log
from runtime.common.benchmark_log import LogError
from runtime.common.evaluation_log import Evaluation

UNKNOWN: Final = "unknown"
"""The delegate of a log that does not name it."""


def read_log(text: str) -> Iterator[ImportedResult]:
    """Yield each evaluation of a log. Raises `NotReadableError` for one that is cut off."""
    try:
        for run in evaluation_log.read_log(text):
            yield _result(run)
    except LogError as error:
        raise NotReadableError(str(error)) from error


def _result(run: Evaluation) -> ImportedResult:
    for name, (kind, latency, judged) in _TOOLS.items():
        if kind in run.items:
            if latency not in run.latency_us:
                raise NotReadableError(f"the list is cut off: no line '{latency} latency: avg=...(us)'")
            figures = Figures(run.runs, run.latency_us[latency] / 1e3, settings=_settings(run))
            return ImportedResult(name, None, UNKNOWN, None, judged(figures.measurement(), run))
    raise NotReadableError(
        "the list is cut off: expected lines as 'OutputDiff[0]: avg_error=...', 'Top-1 Accuracy: ...' or "
        "'Overall mAP: ...' below 'Num evaluation runs'"
    )


def _settings(run: Evaluation) -> dict[str, str]:
    found = {f"top{k}": f"{share:g}" for k, share in run.items.get("best", {}).items()}
    found |= {f"AP@{iou}": f"{value:g}" for iou, value in run.items.get("iou", {}).items()}
    if "overall" in run.items:
        found["mAP"] = f"{run.items['overall']['Overall']:g}"
    if "Reference run" in run.latency_us:
        found["reference_run_ms"] = f"{run.latency_us['Reference run'] / 1e3:g}"
    return found


def _with_differences(measurement: Measurement, run: Evaluation) -> Measurement:
    """Return it with the mean error of each output, and the largest of them as the model's."""
    accuracy = Accuracy.of_errors("LiteRT on the CPU, by Inference Diff", NOT_JUDGED, run.items["output"])
    return measurement.model_copy(update={"accuracy": accuracy})


def _with_ranks(measurement: Measurement, run: Evaluation) -> Measurement:
    """Return it with the share of right first answers. Raises `LogError` for one that is none."""
    shares = run.shares("best")
    if "1" not in shares:
        return measurement
    # The log has the share alone, of a whole number of samples.
    right = round(shares["1"] * measurement.samples)
    score = LabelledScore(metric="top1", samples=measurement.samples, right=right, share=shares["1"])
    return measurement.model_copy(update={"labelled": score})


def _with_precision(measurement: Measurement, run: Evaluation) -> Measurement:
    """Return it with the mean average precision. Raises `LogError` for one that is none."""
    value = run.shares("overall")["Overall"]
    score = LabelledScore(metric="mAP", samples=measurement.samples, right=None, share=value)
    return measurement.model_copy(update={"labelled": score})


_TOOLS: Final[Mapping[str, tuple[str, str, Callable[[Measurement, Evaluation], Measurement]]]] = {
    "inference-diff": ("output", "Test run", _with_differences),
    "image-classification": ("best", "Inference", _with_ranks),
    "object-detection": ("overall", "Inference", _with_precision),
}
"""By tool: the kind of its list, the latency that is the model's, and what the list adds to it."""
