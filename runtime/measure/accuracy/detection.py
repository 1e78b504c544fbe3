"""Detection: boxes of a detector against the objects of pictures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from runtime.delegates.base import Array
from runtime.errors import DataError, MisfitError
from runtime.judge.detections import Detections
from runtime.judge.kinds import ROLES, OutputKind, Role
from runtime.measure.accuracy.answers import Answer, Detail, Sample
from runtime.measure.accuracy.average_precision import OVERLAPS, Detection, matched, overlaps
from runtime.measure.accuracy.files import Files
from runtime.measure.accuracy.ground_truth import GroundTruth, Scene
from runtime.measure.accuracy.pictures import Normalisation, PictureInput, decoded

CLASS_OFFSET: Final = 1
"""What LiteRT's tool adds to a model's class: class 0 of its label file is the background."""

_SURE: Final = 0.3
"""Score from which a detection says something about the offset; those below are mostly noise."""

_LEAST_PAIRS: Final = 5
"""Detections that lie on an object, with another class by one and the same offset, before an offset is
refused. Chosen: two classes that a model confuses are fewer among the first pictures."""


def roles_of(outputs: Sequence[Detail], kinds: Sequence[OutputKind]) -> dict[Role, int]:
    """Return which output is which part of the detections: by the graph, or by LiteRT's order of four.

    Raises `MisfitError` for a model that finds no objects.
    """
    found = {kind.role: number for number, kind in enumerate(kinds) if kind.role is not None}
    if found:
        return found
    shapes = [[int(n) for n in detail["shape"]] for detail in outputs]
    ranks = [len(shape) for shape in shapes]
    if len(shapes) == len(ROLES) and ranks[:3] == [3, 2, 2] and shapes[0][-1] == len(ROLES):
        return {role: number for number, role in enumerate(ROLES)}
    raise MisfitError(
        f"the model is no detector: its {len(shapes)} outputs have the shapes {shapes}; a detector has boxes "
        "[1, N, 4], classes [1, N], scores [1, N] and perhaps a count, in this order or by `outputs:`"
    )


class DetectionTask:
    """Pictures with their objects; `offset` is added to a model's class to have the category's id."""

    def __init__(
        self,
        files: Files,
        truth: GroundTruth,
        port: PictureInput,
        outputs: Sequence[Detail],
        kinds: Sequence[OutputKind],
        normalisation: Normalisation,
        offset: int = CLASS_OFFSET,
    ) -> None:
        """Raise `DataError` for a model that finds no objects, and a picture that is named and missing."""
        for scene in truth.scenes:
            if not files.has(scene.file):
                raise DataError(f"{files.where(scene.file)}: there is no such file, and the truth names it")
        self.head = {"task": "detection", "offset": offset}
        self._roles = roles_of(outputs, kinds)
        self._scales = [(float(d["quantization"][0]), int(d["quantization"][1])) for d in outputs]
        self._files, self._scenes, self._port = files, truth.scenes, port
        self._normalisation, self._offset = normalisation, offset
        self._offsets: Counter[int] = Counter()

    @property
    def count(self) -> int:
        """Return the number of pictures."""
        return len(self._scenes)

    def samples(self, start: int) -> Iterator[Sample]:
        """Yield the pictures from this number on, squeezed to the model's size, as LiteRT does."""
        for scene in self._scenes[start:]:
            where = self._files.where(scene.file)
            pixels = decoded(self._files.read(scene.file), where, is_grey=self._port.channels == 1)
            size = (pixels.shape[1], pixels.shape[0])
            if scene.size is not None and size != scene.size:
                raise DataError(f"{where}: it has {size[0]}x{size[1]} pixels; the truth says {scene.size}")
            yield Sample(scene.file, (self._port.value(pixels, self._normalisation),), scene)

    def answer(self, sample: Sample, outputs: Sequence[Array]) -> Answer:
        """Return the detections with what each is. Raises `DataError` where the offset cannot be right."""
        scene: Scene = sample.truth
        found = self._found(outputs, scene.size or (1, 1))
        self._check_offset(found, scene)
        made = matched(found, scene.objects)
        positives = Counter(one.category for one in scene.objects if not one.is_crowd)
        return {
            "file": sample.name,
            "size": list(scene.size or (1, 1)),
            "found": [[one.category, one.score, one.right, one.ignored, *one.box] for one in made],
            "objects": [[category, count] for category, count in sorted(positives.items())],
        }

    def _found(self, outputs: Sequence[Array], size: tuple[int, int]) -> list[Detection]:
        parts: dict[Role, Any] = {}
        for role, number in self._roles.items():
            scale, zero_point = self._scales[number]
            values = outputs[number].astype(np.float64)
            parts[role] = (values - zero_point) * scale if scale else values
        found = Detections.of(parts)
        # A box that is not finite overlaps nothing, and a score of NaN has no place in the order of scores.
        is_real = np.isfinite(found.boxes).all(axis=1) & np.isfinite(found.scores)
        width, height = size
        made = []
        for box, category, score in zip(
            found.boxes[is_real], found.classes[is_real], found.scores[is_real], strict=True
        ):
            top, left, bottom, right = (float(value) for value in box)
            pixels = (left * width, top * height, (right - left) * width, (bottom - top) * height)
            made.append(Detection(round(float(category)) + self._offset, float(score), pixels))
        return made

    def _check_offset(self, found: Sequence[Detection], scene: Scene) -> None:
        """Count by what the classes of detections that lie on an object differ from its class."""
        sure = [one for one in found if one.score >= _SURE]
        if not sure or not scene.objects:
            return
        shares = overlaps(sure, scene.objects)
        for one, row in zip(sure, shares, strict=True):
            if row.max() >= OVERLAPS[0]:
                self._offsets[scene.objects[int(row.argmax())].category - one.category] += 1
        if not self._offsets:
            return  # Nothing that was found lies on an object yet.
        right = self._offsets[0]
        difference, count = max(self._offsets.items(), key=lambda item: item[1])
        if difference and count >= _LEAST_PAIRS and count > 2 * right:
            raise DataError(
                f"class offset {self._offset}: of {self._offsets.total()} detections that lie on an object, "
                f"{right} have its class, and {count} would with {self._offset + difference}"
            )
