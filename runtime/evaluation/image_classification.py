"""`image_classification_run_eval`: LiteRT's Top-1 to Top-10 of a classifier, on any registered delegate."""

from collections.abc import Sequence

from runtime.common.protobuf import message, real32
from runtime.evaluation.flags import FlagError, Flags
from runtime.evaluation.run_eval import Lines, required, run_eval, stage_metrics
from runtime.measure.accuracy.answers import read_answers
from runtime.measure.accuracy.data import OBJECTS, Data
from runtime.measure.accuracy.scores import scores
from runtime.tools.model_eval.process import Passed

_METRICS = 4
"""Field of `ProcessMetrics` that holds the metrics of this tool."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code: 0, or 2 for a wrong call or a file that cannot be used."""
    return run_eval("image_classification_run_eval", words, _data, _report)


def _data(flags: Flags) -> Data:
    left_out: set[int] = set()
    if flags.text("denylist_file_path"):
        path = required(flags, "denylist_file_path")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip().isdecimal() or not int(line):
                raise FlagError(f"{path}: line {number} is no number of a picture, from 1: {line!r}")
            left_out.add(int(line))
    if flags.integer("num_images") < 0:
        raise FlagError(f"--num_images={flags.integer('num_images')}: expected 0 or more")
    truth = required(flags, "ground_truth_labels")
    # `make_task` goes by the suffix, and would score boxes instead of labels.
    if truth.suffix in OBJECTS:
        raise FlagError(f"--ground_truth_labels={truth}: expected a text file with a label a line")
    return Data(
        required(flags, "ground_truth_images_path"),
        truth,
        required(flags, "model_output_labels"),
        most=flags.integer("num_images"),
        left_out=frozenset(left_out),
    )


def _report(passed: Passed, _flags: Flags) -> tuple[Lines, bytes]:
    found = scores(passed.head, read_answers(passed.answers))
    accuracies = b"".join(real32(1, one.value) for one in found)
    lines = (f"Top-{k} Accuracy: {one.value:g}" for k, one in enumerate(found, 1))
    return lines, message(_METRICS, stage_metrics(passed, accuracies))
