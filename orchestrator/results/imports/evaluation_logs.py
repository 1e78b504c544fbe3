"""Reads what LiteRT's evaluation tools print: Inference Diff, image classification, object detection.

A log ends with its figures: a number of runs, a latency in us, and the list of errors or accuracies. None of
them names the model or how it was run. The latency has a mean and no median.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.wire.bounded import MAX_OUTPUTS
from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Accuracy, Measurement, OutputAccuracy
from orchestrator.results.imports.reports import NOT_JUDGED, Figures, ImportedResult, NotReadableError

_NUMBER: Final = r"([0-9.]{1,40}(?:e[+-]?[0-9]{1,4})?)"
_RUNS: Final = re.compile(r"Num evaluation runs: (\d{1,18})$")
_LATENCY: Final = re.compile(rf"(Reference run|Test run|Inference) latency: avg={_NUMBER}\(us\)")
_ITEM: Final = re.compile(
    rf"(?:OutputDiff\[(?P<output>\d{{1,9}})\]: avg_error={_NUMBER}"
    rf"|Top-(?P<best>\d{{1,2}}) Accuracy: {_NUMBER}"
    rf"|Average Precision \[IOU Threshold=(?P<iou>[0-9.]{{1,9}})\]: {_NUMBER}"
    rf"|(?P<overall>Overall) mAP: {_NUMBER})"
)
UNKNOWN: Final = "unknown"
"""The delegate of a log that does not name it."""


@dataclass(slots=True)
class _Run:
    """The figures in the lines of one evaluation; `items` by output, k or IoU threshold, as printed."""

    runs: int
    latency_us: dict[str, float]
    items: dict[str, dict[str, float]]

    def take(self, line: str) -> None:
        if found := _LATENCY.search(line):
            self.latency_us[found[1]] = _float(found[2])
        elif found := _ITEM.search(line):
            kind = next(name for name, value in found.groupdict().items() if value)
            self.items.setdefault(kind, {})[found[kind]] = _float(str(found[found.lastindex or 0]))


def is_log(text: str) -> bool:
    """Whether a text is such a log, whole or cut off."""
    return "Num evaluation runs: " in text or _ITEM.search(text) is not None


def read_log(text: str) -> Iterator[ImportedResult]:
    """Yield each evaluation of a log. Raises `NotReadableError` for one that is cut off."""
    run: _Run | None = None
    for line in map(str.rstrip, text.splitlines()):
        if found := _RUNS.search(line):
            if run is not None:
                yield _result(run)
            run = _Run(int(found[1]), {}, {})
        elif run is not None:
            run.take(line)
    if run is None:
        raise NotReadableError("the list is cut off: it begins with 'Num evaluation runs: 50'")
    yield _result(run)


def _result(run: _Run) -> ImportedResult:
    for name, (kind, latency, judged) in _TOOLS.items():
        if kind in run.items:
            if latency not in run.latency_us:
                raise NotReadableError(f"the list is cut off: no line '{latency} latency: avg=...(us)'")
            figures = Figures(run.runs, run.latency_us[latency] / 1e3, settings=_settings(run))
            return ImportedResult(name, None, UNKNOWN, None, judged(figures.measurement(), run.items[kind]))
    raise NotReadableError(
        "the list is cut off: expected lines as 'OutputDiff[0]: avg_error=...', 'Top-1 Accuracy: ...' or "
        "'Overall mAP: ...' below 'Num evaluation runs'"
    )


def _settings(run: _Run) -> dict[str, str]:
    found = {f"top{k}": f"{share:g}" for k, share in run.items.get("best", {}).items()}
    found |= {f"AP@{iou}": f"{value:g}" for iou, value in run.items.get("iou", {}).items()}
    if "overall" in run.items:
        found["mAP"] = f"{run.items['overall']['Overall']:g}"
    if "Reference run" in run.latency_us:
        found["reference_run_ms"] = f"{run.latency_us['Reference run'] / 1e3:g}"
    return found


def _with_differences(measurement: Measurement, errors: Mapping[str, float]) -> Measurement:
    """Return it with the mean error of each output, and the largest of them as the model's."""
    unknown = dict.fromkeys(("max_abs", "rel_l2", "cosine"))
    outputs = tuple(
        OutputAccuracy(name=f"output {at}", mean_abs=error, top1=None, nonfinite=0, verdict=None, **unknown)
        for at, error in list(errors.items())[:MAX_OUTPUTS]
    )
    accuracy = Accuracy(
        reference="LiteRT on the CPU, by Inference Diff", mean_abs=max(errors.values()), verdict=None,
        note=NOT_JUDGED, outputs=outputs, **unknown,
    )  # fmt: skip
    return measurement.model_copy(update={"accuracy": accuracy})


def _with_ranks(measurement: Measurement, shares: Mapping[str, float]) -> Measurement:
    """Return it with the share of right first answers. Raises `NotReadableError` for one that is none."""
    if not all(0.0 <= share <= 1.0 for share in shares.values()):
        raise NotReadableError("an accuracy that is not between 0 and 1")
    if "1" not in shares:
        return measurement
    right = round(shares["1"] * measurement.samples)
    score = LabelledScore(metric="top1", samples=measurement.samples, right=right, share=shares["1"])
    return measurement.model_copy(update={"labelled": score})


def _with_precision(measurement: Measurement, found: Mapping[str, float]) -> Measurement:
    """Return it with the mean average precision. Raises `NotReadableError` for one that is none."""
    value = found["Overall"]
    if not 0.0 <= value <= 1.0:
        raise NotReadableError("an average precision that is not between 0 and 1")
    score = LabelledScore(metric="mAP", samples=measurement.samples, right=None, share=value)
    return measurement.model_copy(update={"labelled": score})


_TOOLS: Final[Mapping[str, tuple[str, str, Callable[[Measurement, Mapping[str, float]], Measurement]]]] = {
    "inference-diff": ("output", "Test run", _with_differences),
    "image-classification": ("best", "Inference", _with_ranks),
    "object-detection": ("overall", "Inference", _with_precision),
}
"""By tool: the kind of its list, the latency that is the model's, and what the list adds to it."""


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise NotReadableError(f"{text!r} is not a number") from error
