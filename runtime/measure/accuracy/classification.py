"""Classification: is the true class among the best answers?"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from runtime.delegates.base import Array
from runtime.errors import DataError, MisfitError
from runtime.measure.accuracy.answers import Answer, Detail, Sample
from runtime.measure.accuracy.files import Files
from runtime.measure.accuracy.pictures import CROP, Normalisation, PictureInput, cropped, decoded

BEST: Final = 10
"""The most places that are looked at: LiteRT's tool prints Top-1 to Top-10."""


def class_count(outputs: Sequence[Detail]) -> int:
    """Return the number of classes of a classifier. Raises `MisfitError` for a model that is none."""
    shapes = [[int(n) for n in detail["shape"]] for detail in outputs]
    count = int(np.prod(shapes[0])) if len(shapes) == 1 else 0
    if not shapes or count != max(shapes[0], default=0) or count < 2:
        raise MisfitError(
            f"the model is no classifier: it has {len(shapes)} outputs of the shapes {shapes}; a classifier "
            "has one, [1, classes]"
        )
    return count


def places(classes: int) -> int:
    """Return how many best answers are counted: every answer is among as many as there are classes."""
    return min(BEST, classes - 1)


def check_places(metric: str, classes: int) -> None:
    """Raise `MisfitError` for a Top-k of a model with at most k classes: every answer would be right."""
    best = int(metric.removeprefix("top"))
    if best >= classes:
        raise MisfitError(f"{metric} of a model with {classes} classes: every answer would be right")


def classified(name: str, truth: frozenset[int], output: Array) -> Answer:
    """Return the answer of an output; of equal scores the lower class comes first, as in LiteRT.

    `rank`: the place of the first true class, from 0, None where it is none of the best.
    """
    values = output.reshape(-1)
    # In float64, since unsigned levels, and the lowest signed one, have no negative of their own type.
    order = np.argsort(-values.astype(np.float64), kind="stable")[: places(values.size)]
    best = [int(number) for number in order]
    rank = next((place for place, number in enumerate(best) if number in truth), None)
    scores = [float(values[number]) for number in best]
    return {"file": name, "truth": sorted(truth), "best": best, "scores": scores, "rank": rank}


class Classification:
    """Pictures with the label of each, and the labels of the model's classes.

    Several classes may have one label; each of them is right.
    """

    def __init__(
        self,
        files: Files,
        pictures: Sequence[str],
        truth: Sequence[str],
        labels: Sequence[str],
        port: PictureInput,
        normalisation: Normalisation,
    ) -> None:
        """`truth`: the label of each picture. Raises `DataError` for a label that no class has."""
        if not truth:
            raise DataError(f"{files.path}: there is no picture (.jpg, .jpeg, .png)")
        known: dict[str, list[int]] = {}
        for number, label in enumerate(labels):
            known.setdefault(label, []).append(number)
        for name, label in zip(pictures, truth, strict=True):
            if label not in known:
                raise DataError(f"{files.where(name)}: its label {label!r} is none of the model's")
        self.head = {"task": "classification", "best": places(len(labels))}
        self._classes = {label: frozenset(numbers) for label, numbers in known.items()}
        self._files, self._pictures, self._truth = files, pictures, truth
        self._port, self._normalisation = port, normalisation

    @property
    def count(self) -> int:
        """Return the number of pictures."""
        return len(self._truth)

    def samples(self, start: int) -> Iterator[Sample]:
        """Yield the pictures from this number on."""
        files = self._files
        for name, label in zip(self._pictures[start:], self._truth[start:], strict=True):
            pixels = decoded(files.read(name), files.where(name), is_grey=self._port.channels == 1)
            value = self._port.value(cropped(pixels, CROP), self._normalisation)
            yield Sample(name, (value,), self._classes[label])

    def answer(self, sample: Sample, outputs: Sequence[Array]) -> Answer:
        """Return the best classes and the place of the true one."""
        return classified(sample.name, sample.truth, outputs[0])
