"""The accuracy of an arm at an attached device, as LiteRT's evaluation tools there tell it.

`inference_diff` compares a cell's delegate with LiteRT on one thread, on inputs of its own: its mean errors
are figures without a verdict, as no rule knows their norms. The two `run_eval` score labelled pictures.
"""

import io
import math
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agent.wire.labelled import LabelledScore
from agent.wire.measurement import Accuracy
from agent.wire.plan import LabelledData
from runtime.common.benchmark_log import LogError
from runtime.common.evaluation_log import CLASSIFICATION, DETECTION, INFERENCE_DIFF, Evaluation, read_log
from runtime.errors import DataError, NoDeviceError
from runtime.measure.accuracy.data import GROUND_TRUTH, INSTANCES, LABELS
from runtime.measure.accuracy.files import Files
from runtime.measure.accuracy.ground_truth import GroundTruth, Scene, read_coco
from runtime.measure.accuracy.intervals import judged_share, share_interval
from runtime.model.reader import read_model

_DELEGATE_FLAGS: Final = ("use_gpu", "gpu_precision_loss_allowed", "use_xnnpack")
"""Flags of `benchmark_model` that choose the delegate: the other tools have them, too."""

_PICTURES: Final = "pictures"
_PROTO: Final = "truth.pbtxt"


def evaluation_words(
    folder: str, tool: str, model: str, flags: Mapping[str, str], more: Mapping[str, object]
) -> list[str]:
    """Return the command line of a tool in a folder, by the cell's flags of `benchmark_model`."""
    shared = {name: flags[name] for name in _DELEGATE_FLAGS if name in flags}
    # For the model and the threads, these tools have other flags than `benchmark_model`.
    all_of_it = {"model_file": model, "num_interpreter_threads": flags["num_threads"], **shared, **more}
    return [f"{folder}/{tool}", *(f"--{name}={value}" for name, value in all_of_it.items())]


def tool_of(data: LabelledData, environment: Mapping[str, str]) -> str:
    """Return the tool that scores labelled data. Raises `NoDeviceError` for what none of the device does."""
    tool = DETECTION if data.metric == "mAP" else CLASSIFICATION
    # For its defaults of mean, std and class_offset, which are the tool's own.
    plain = LabelledData(sha256=data.sha256, size_bytes=data.size_bytes)
    if data.metric != "mAP" and not data.metric.startswith("top"):
        raise NoDeviceError(f"labelled data: LiteRT's tools tell top1 to top10 and mAP, not {data.metric}")
    if data.max_drop is not None:
        raise NoDeviceError("max_drop: the device's tool tells no single answers, which are paired for it")
    if (data.mean, data.std, data.class_offset) != (plain.mean, plain.std, plain.class_offset):
        raise NoDeviceError("mean, std, class_offset: the device's tool has LiteRT's own alone")
    if tool not in environment:
        text = f"labelled data: the device has no {tool}; `evaluation` of its entry names the tools' folder"
        raise NoDeviceError(text)
    return tool


def data_flags(tool: str, folder: str) -> dict[str, str]:
    """Return the flags that name the files of `packed` in a folder on the device."""
    truth = "ground_truth_proto" if tool == DETECTION else "ground_truth_labels"
    file = _PROTO if tool == DETECTION else GROUND_TRUTH
    named = {"ground_truth_images_path": _PICTURES, truth: file, "model_output_labels": LABELS}
    return {flag: f"{folder}/{name}" for flag, name in named.items()}


def packed(tool: str, data: Path, model: Path, target: Path) -> None:
    """Write a tar of labelled pictures as a tool reads them: numbered in their order, with truth and labels.

    Raises `DataError`, `OSError` and, for labels that only the model tells, the reader's errors.
    """
    files = Files(data)
    if tool == DETECTION:
        truth = read_coco(files.read(INSTANCES), files.where(INSTANCES))
        pictures: Iterable[str] = [scene.file for scene in truth.scenes]
        texts = {_PROTO: "".join(map(_scene, range(len(truth.scenes)), truth.scenes)).encode()}
        labels: Iterable[object] = _labels_of(truth)
    else:
        pictures, texts = files.pictures, {GROUND_TRUTH: files.read(GROUND_TRUTH)}
        labels = _numbers_of(model) if not files.has(LABELS) else ()
        # The tool pairs lines and pictures by their places alone.
        if (count := len(texts[GROUND_TRUTH].splitlines())) != len(files.pictures):
            raise DataError(f"{files.where(GROUND_TRUTH)}: {count} labels; {len(files.pictures)} pictures")
    lines = "".join(f"{one}\n" for one in labels).encode()
    texts[LABELS] = files.read(LABELS) if files.has(LABELS) else lines
    with tarfile.open(target, "w") as archive:
        for name, content in _members(files, pictures, texts):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _members(
    files: Files, pictures: Iterable[str], texts: Mapping[str, bytes]
) -> Iterator[tuple[str, bytes]]:
    yield from texts.items()
    for number, name in enumerate(pictures):
        yield f"{_PICTURES}/{_file(number, name)}", files.read(name)


def _file(number: int, name: str) -> str:
    # Padded with zeros: the tools take pictures in the order of their names.
    return f"{number:08d}{Path(name).suffix.lower()}"


def _scene(number: int, scene: Scene) -> str:
    """Return a picture of LiteRT's `ObjectDetectionGroundTruth` in text form, without crowds: it has none."""
    assert scene.size is not None
    width, height = scene.size
    objects = ""
    for thing in scene.objects:
        x, y, w, h = thing.box
        sides = {"top": y / height, "bottom": (y + h) / height, "left": x / width, "right": (x + w) / width}
        box = " ".join(f"normalized_{side}: {share!r}" for side, share in sides.items())
        if not thing.is_crowd:
            objects += f" objects {{ class_id: {thing.category} bounding_box {{ {box} }} }}"
    name = _file(number, scene.file)
    return f'detection_results {{ image_id: {number} image_name: "{name}"{objects} }}\n'


def _labels_of(truth: GroundTruth) -> list[str]:
    # A line for each number, those between two categories included: the tool counts lines.
    return [
        truth.categories.get(number, "???") or "???" for number in range(max(truth.categories, default=0) + 1)
    ]


def _numbers_of(model: Path) -> range:
    graph = read_model(model.read_bytes()).subgraphs[0]
    return range(math.prod(graph.tensors[graph.outputs[0]].shape))


def difference_of(printed: str, tool: str) -> Accuracy:
    """Return the errors that `inference_diff` printed. Raises `LogError` where there are none."""
    found = _last(printed, "output")
    note = f"{INFERENCE_DIFF} tells mean errors over {found.runs} sets of inputs; no rule judges them"
    return Accuracy.of_errors(
        f"LiteRT on one thread of the device, by {INFERENCE_DIFF} {tool}", note, found.items["output"]
    )


def score_of(printed: str, data: LabelledData) -> LabelledScore:
    """Return the score that a `run_eval` printed. Raises `LogError` where it is not there.

    The tool prints no interval; that of a share of right answers follows from their number.
    """
    kind, item = ("overall", "Overall") if data.metric == "mAP" else ("best", data.metric.removeprefix("top"))
    found = _last(printed, kind)
    share = found.shares(kind).get(item)
    if share is None or found.runs < 1:
        raise LogError(f"no {data.metric} among its lines")
    # Printed is the share alone, of a whole number of pictures.
    right = None if data.metric == "mAP" else round(share * found.runs)
    interval = None if right is None else share_interval(right, found.runs)
    asked = data.at_least
    # A bound cannot be judged without an interval, which mAP does not have here.
    unknown = None if asked is None else "inconclusive"
    return LabelledScore(
        metric=data.metric,
        samples=found.runs,
        right=right,
        share=share,
        ci95=interval,
        at_least=asked,
        verdict=unknown if asked is None or interval is None else judged_share(interval, asked),
    )


def _last(printed: str, kind: str) -> Evaluation:
    *_, found = read_log(printed)
    if kind not in found.items:
        raise LogError("no 'OutputDiff[0]: avg_error=...', 'Top-1 Accuracy: ...' or 'Overall mAP: ...'")
    return found
