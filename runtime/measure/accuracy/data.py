"""A data set as a command line or a campaign file names it, made into the task of a model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Final

import numpy as np

from runtime.errors import DataError, MisfitError, ModelFormatError
from runtime.judge.kinds import OutputKind, Stated, kinds_by_type, output_kinds
from runtime.measure.accuracy.answers import Detail, Task
from runtime.measure.accuracy.classification import Classification, check_places, class_count
from runtime.measure.accuracy.detection import CLASS_OFFSET, DetectionTask
from runtime.measure.accuracy.files import Files
from runtime.measure.accuracy.ground_truth import GroundTruth, read_coco, read_text_proto
from runtime.measure.accuracy.pictures import Normalisation, PictureInput
from runtime.measure.accuracy.tensors import METRICS, ArrayTask, is_arrays
from runtime.model.facts import picture_normalisation
from runtime.model.graph import Model

GROUND_TRUTH: Final = "ground_truth.txt"
INSTANCES: Final = "instances.json"
LABELS: Final = "labels.txt"
"""Files of a data set of pictures that stand for those that nothing names."""

OBJECTS: Final = {".json": read_coco, ".pbtxt": read_text_proto, ".pb": read_text_proto}
"""Readers of objects by the suffix of their file; LiteRT's helper calls its text proto `ground_truth.pb`."""


@dataclass(frozen=True, slots=True)
class Data:
    """A data set: pictures in a folder or an archive, or arrays in a .npz.

    `truth`: labels, one a line in the order of the pictures' names; or objects (`.json` of COCO, `.pbtxt` of
    LiteRT); or, of a .npz, the file of the wanted outputs. `labels`: those of the model's classes; without
    them a class's label is its number. `metric`: of arrays without labels. `most`: samples at most, 0 for
    all; `left_out`: numbers of pictures, from 1, that LiteRT's denylist names.
    """

    path: Path
    truth: Path | None = None
    labels: Path | None = None
    metric: str | None = None
    class_offset: int = CLASS_OFFSET
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    most: int = 0
    left_out: frozenset[int] = frozenset()


def make_task(
    data: Data,
    model: Model | None,
    inputs: Sequence[Detail],
    outputs: Sequence[Detail],
    stated: Stated | None = None,
) -> Task:
    """Return the task of a model with these inputs and outputs on a data set.

    `model`: its graph, None where only the delegate can read it. Raises `DataError` and `OSError`.
    """
    if is_arrays(data.path):
        return _of_arrays(data, inputs, outputs)
    files = Files(data.path)
    port, normalisation = PictureInput.of(inputs), _normalisation(data, model)
    where, content = _truth(data, files)
    read = OBJECTS.get(Path(where).suffix)
    if read is not None:
        _check_metric(data, ("mAP",))
        found = read(content, where)
        _check_labels(data, found, where)
        kinds = _kinds(model, outputs, stated)
        return DetectionTask(
            files, found.first(data.most), port, outputs, kinds, normalisation, data.class_offset
        )
    classes = class_count(outputs)
    _check_metric(data, tuple(f"top{k + 1}" for k in range(10)))
    if data.metric is not None:
        check_places(data.metric, classes)
    labels = _labels(data, files, classes)
    named = _labelled_pictures(data, files, where, content)
    return Classification(files, *named, labels, port, normalisation)


def _of_arrays(data: Data, inputs: Sequence[Detail], outputs: Sequence[Detail]) -> Task:
    is_labelled = data.metric is None or data.metric.startswith("top")
    if is_labelled and data.metric is not None:
        check_places(data.metric, class_count(outputs[:1]))
    if not is_labelled:
        _check_metric(data, tuple(METRICS))
    return ArrayTask(data.path, inputs, outputs, None if is_labelled else data.metric, data.truth)


def _check_metric(data: Data, known: Sequence[str]) -> None:
    if data.metric is not None and data.metric not in known:
        raise DataError(f"{data.path}: the metric {data.metric!r} is not of this data: {', '.join(known)}")


def _normalisation(data: Data, model: Model | None) -> Normalisation:
    """Return what the task states, else what the model's metadata says of a real input, else LiteRT's."""
    if data.mean is not None or data.std is not None:
        mean, std = data.mean or (0.0,), data.std or (1.0,)
        if any(value <= 0 for value in std) or {len(mean), len(std)} - {1, 3}:
            raise DataError(f"mean {mean} and std {std}: one number or three, each std above 0")
        return Normalisation(mean, std, is_stated=True)
    found = None if model is None else picture_normalisation(model)
    return Normalisation() if found is None else Normalisation(*found)


def _truth(data: Data, files: Files) -> tuple[str, bytes]:
    if data.truth is not None:
        return str(data.truth), data.truth.read_bytes()
    for name in (INSTANCES, GROUND_TRUTH):
        if files.has(name):
            return files.where(name), files.read(name)
    raise DataError(f"{data.path}: it has neither {INSTANCES} nor {GROUND_TRUTH}, and no truth is named")


def _lines(content: bytes, where: str) -> list[str]:
    try:
        # Of equal lines one is kept: a large data set repeats a few labels.
        return [sys.intern(line) for line in content.decode().splitlines()]
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: no text in UTF-8: {error}") from error


def _labels(data: Data, files: Files, classes: int) -> list[str]:
    if data.labels is not None:
        where, content = str(data.labels), data.labels.read_bytes()
    elif files.has(LABELS):
        where, content = files.where(LABELS), files.read(LABELS)
    else:
        return [str(number) for number in range(classes)]
    labels = _lines(content, where)
    if len(labels) != classes:
        raise DataError(f"{where}: {len(labels)} labels; the model has {classes} classes")
    return labels


def _check_labels(data: Data, truth: GroundTruth, where: str) -> None:
    """Raise `DataError` for an object whose class has no label, the first of which is the background's."""
    if data.labels is None:
        return
    count = len(_lines(data.labels.read_bytes(), str(data.labels)))
    for scene in truth.scenes:
        for thing in scene.objects:
            if thing.category >= count:
                raise DataError(
                    f"{where}: {scene.file} has an object of category {thing.category}; {data.labels} has "
                    f"{count} labels"
                )


def _labelled_pictures(
    data: Data, files: Files, where: str, content: bytes
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of pictures and the label of each."""
    pictures, labels = files.pictures, _lines(content, where)
    if len(labels) != len(pictures):
        raise DataError(f"{where}: {len(labels)} labels; {files.path} has {len(pictures)} pictures")
    if data.left_out:
        kept = [number not in data.left_out for number in range(1, len(pictures) + 1)]
        pictures, labels = pictures[np.array(kept, bool)], list(compress(labels, kept))
    return pictures[: data.most or None], labels[: data.most or None]


def _kinds(model: Model | None, outputs: Sequence[Detail], stated: Stated | None) -> tuple[OutputKind, ...]:
    if model is None:
        return kinds_by_type([("f", 0.0)] * len(outputs))
    try:
        return output_kinds(model, stated or {})
    except ModelFormatError as error:
        raise MisfitError(str(error)) from error
