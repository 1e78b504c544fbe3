"""Reads what LiteRT's evaluation tools print: Inference Diff, image classification, object detection.

A log ends with its figures: a number of runs, a latency in us, and the list of errors or accuracies. None of
them names the model or how it was run. The latency has a mean and no median.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from runtime.common.benchmark_log import LogError

INFERENCE_DIFF: Final = "inference_diff"
CLASSIFICATION: Final = "image_classification_run_eval"
DETECTION: Final = "coco_object_detection_run_eval"

_NUMBER: Final = r"([0-9.]{1,40}(?:e[+-]?[0-9]{1,4})?)"
_RUNS: Final = re.compile(r"Num evaluation runs: (\d{1,18})$")
_LATENCY: Final = re.compile(rf"(Reference run|Test run|Inference) latency: avg={_NUMBER}\(us\)")
_ITEM: Final = re.compile(
    rf"(?:OutputDiff\[(?P<output>\d{{1,9}})\]: avg_error={_NUMBER}"
    rf"|Top-(?P<best>\d{{1,2}}) Accuracy: {_NUMBER}"
    rf"|Average Precision \[IOU Threshold=(?P<iou>[0-9.]{{1,9}})\]: {_NUMBER}"
    rf"|(?P<overall>Overall) mAP: {_NUMBER})"
)


@dataclass(slots=True)
class Evaluation:
    """The figures of one evaluation; `items` by kind (`output`, `best`, `iou`, `overall`), and in it by
    output, k or IoU threshold, as printed.
    """

    runs: int
    latency_us: dict[str, float] = field(default_factory=dict)
    items: dict[str, dict[str, float]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Note what a line says. Raises `LogError` for a number that is none."""
        if found := _LATENCY.search(line):
            self.latency_us[found[1]] = _float(found[2])
        elif found := _ITEM.search(line):
            kind = next(name for name, value in found.groupdict().items() if value)
            # The number is the last group of each alternative, and only
            # the groups of the one that matched are set.
            self.items.setdefault(kind, {})[found[kind]] = _float(str(found[found.lastindex or 0]))

    def shares(self, kind: str) -> dict[str, float]:
        """Return the items of a kind that are shares. Raises `LogError` for one that is none."""
        found = self.items.get(kind, {})
        if not all(0.0 <= share <= 1.0 for share in found.values()):
            raise LogError("an accuracy that is not between 0 and 1")
        return found


def is_log(text: str) -> bool:
    """Whether a text is such a log, whole or cut off."""
    return "Num evaluation runs: " in text or _ITEM.search(text) is not None


def read_log(text: str) -> Iterator[Evaluation]:
    """Yield each evaluation of a log. Raises `LogError` for one that has none."""
    run: Evaluation | None = None
    for line in map(str.rstrip, text.splitlines()):
        if found := _RUNS.search(line):
            if run is not None:
                yield run
            run = Evaluation(int(found[1]))
        elif run is not None:
            run.take(line)
    if run is None:
        raise LogError("the list is cut off: it begins with 'Num evaluation runs: 50'")
    yield run


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise LogError(f"{text!r} is not a number") from error
