"""`coco_object_detection_run_eval`: LiteRT's average precision of a detector, on any registered delegate."""

from collections.abc import Sequence
from itertools import chain

from runtime.common.protobuf import message, real32
from runtime.evaluation.flags import FlagError, Flags
from runtime.evaluation.run_eval import Lines, required, run_eval, stage_metrics
from runtime.measure.accuracy.answers import Answer, read_answers
from runtime.measure.accuracy.average_precision import OVERLAPS
from runtime.measure.accuracy.data import OBJECTS, Data
from runtime.measure.accuracy.scores import curves
from runtime.tools.model_eval.process import Passed

_METRICS = 7
"""Field of `ProcessMetrics` that holds the metrics of this tool."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code: 0, or 2 for a wrong call or a file that cannot be used."""
    return run_eval("coco_object_detection_run_eval", words, _data, _report)


def _data(flags: Flags) -> Data:
    truth = required(flags, "ground_truth_proto")
    if truth.suffix not in OBJECTS:
        raise FlagError(f"--ground_truth_proto={truth}: its name ends with none of {', '.join(OBJECTS)}")
    return Data(required(flags, "ground_truth_images_path"), truth, required(flags, "model_output_labels"))


def _report(passed: Passed, flags: Flags) -> tuple[Lines, bytes]:
    """Return LiteRT's figures: a class that is found and has no object counts as 0."""
    each = curves(read_answers(passed.answers)).precisions(absent_is_zero=True)
    # A row for each overlap, a column for each class; without classes the mean would be NaN.
    rows = each.mean(axis=1).tolist() if each.size else [0.0] * len(OVERLAPS)
    overall = sum(rows) / len(rows)
    pairs = list(zip(OVERLAPS, rows, strict=True))
    single = b"".join(message(1, real32(1, overlap) + real32(2, value)) for overlap, value in pairs)
    lines = (f"Average Precision [IOU Threshold={overlap:g}]: {value:g}" for overlap, value in pairs)
    answers = read_answers(passed.answers) if flags.is_set("debug_mode") else ()
    debug = chain.from_iterable(map(_debug_lines, answers))
    metrics = stage_metrics(passed, single + real32(2, overall))
    return chain(debug, lines, (f"Overall mAP: {overall:g}",)), message(_METRICS, metrics)


def _debug_lines(answer: Answer) -> Lines:
    width, height = answer["size"]
    yield "=" * 54
    yield f"Image: {answer['file']}"
    for number, (category, score, _right, _ignored, x, y, w, h) in enumerate(answer["found"]):
        yield f"Object [{number}]"
        yield f"  Score: {score:g}"
        yield f"  Class-ID: {category}"
        yield "  Bounding Box:"
        yield f"    Normalized Top: {y / height:g}"
        yield f"    Normalized Bottom: {(y + h) / height:g}"
        yield f"    Normalized Left: {x / width:g}"
        yield f"    Normalized Right: {(x + w) / width:g}"
