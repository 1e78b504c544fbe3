"""COCO's average precision: greedy matching at ten overlaps, precision at 101 recalls.

After pycocotools' `COCOeval` for areas of every size and 100 detections a class, whose figures these are.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

OVERLAPS: Final = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Intersection over union from which a detection is right, 0.50:0.05:0.95."""

_RECALLS: Final = np.linspace(0.0, 1.0, 101)

MOST_DETECTIONS: Final = 100
"""Detections of a class in an image that count, the best ones: COCO's largest `maxDets`."""


@dataclass(frozen=True, slots=True)
class Object:
    """An object of an image: its class, its box (left, top, width, height), and whether it is a crowd."""

    category: int
    box: tuple[float, float, float, float]
    is_crowd: bool = False


@dataclass(frozen=True, slots=True)
class Detection:
    """A detection; bit i of `right` and of `ignored` is for the i-th overlap, 0 before matching."""

    category: int
    score: float
    box: tuple[float, float, float, float]
    right: int = 0
    ignored: int = 0


def overlaps(found: Sequence[Detection], objects: Sequence[Object]) -> Reals:
    """Return the intersection over union [found, objects]; over the detection alone where a crowd is."""
    a = np.array([one.box for one in found], np.float64).reshape(-1, 1, 4)
    b = np.array([one.box for one in objects], np.float64).reshape(1, -1, 4)
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    shared = np.maximum(high - low, 0.0).prod(axis=-1)
    areas_a, areas_b = a[..., 2:].prod(axis=-1), b[..., 2:].prod(axis=-1)
    crowds = np.array([one.is_crowd for one in objects], bool)
    union = np.where(crowds, areas_a, areas_a + areas_b - shared)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0.0))


def matched(found: Sequence[Detection], objects: Sequence[Object]) -> list[Detection]:
    """Match the detections of one image and return them with what they are, class by class, best first."""
    made: list[Detection] = []
    for category in sorted({one.category for one in found}):
        own = [one for one in found if one.category == category]
        own = sorted(own, key=lambda one: -one.score)[:MOST_DETECTIONS]
        true = [one for one in objects if one.category == category]
        # A crowd is matched by what no object takes, and neither right nor wrong.
        made.extend(_matched(own, sorted(true, key=lambda one: one.is_crowd)))
    return made


def _matched(found: Sequence[Detection], objects: Sequence[Object]) -> list[Detection]:
    shares = overlaps(found, objects)
    right, ignored = [0] * len(found), [0] * len(found)
    for bit, least in enumerate(OVERLAPS):
        is_taken = [False] * len(objects)
        for i in range(len(found)):
            # As in `evaluateImg` of pycocotools, whose figures these are.
            best, partner = min(least, 1 - 1e-10), -1
            for j, one in enumerate(objects):
                if is_taken[j] and not one.is_crowd:
                    continue
                # Crowds come last: an object that matched is not given up for one.
                if partner >= 0 and one.is_crowd and not objects[partner].is_crowd:
                    break
                if shares[i, j] >= best:
                    best, partner = shares[i, j], j
            if partner >= 0:
                is_taken[partner] = True
                if objects[partner].is_crowd:
                    ignored[i] |= 1 << bit
                else:
                    right[i] |= 1 << bit
    return [Detection(one.category, one.score, one.box, right[i], ignored[i]) for i, one in enumerate(found)]


@dataclass(slots=True)
class _Class:
    """Detections of a class and, by images, its objects; 16 bytes of a detection, whatever the images."""

    scores: array[float] = field(default_factory=lambda: array("d"))
    right: array[int] = field(default_factory=lambda: array("H"))
    ignored: array[int] = field(default_factory=lambda: array("H"))
    images: array[int] = field(default_factory=lambda: array("i"))
    object_images: array[int] = field(default_factory=lambda: array("i"))
    objects: array[int] = field(default_factory=lambda: array("i"))
    is_sorted: bool = True

    def sort(self) -> None:
        """Put the best detection first; of equal ones the first that was added."""
        if self.is_sorted:
            return
        order = np.argsort(-np.frombuffer(self.scores), kind="stable")
        for values in (self.scores, self.right, self.ignored, self.images):
            ordered = np.frombuffer(values, values.typecode)[order].tobytes()
            del values[:]
            values.frombytes(ordered)
        self.is_sorted = True


class Curves:
    """Collects matched images, and gives the average precision of all, or of a sample of them."""

    def __init__(self) -> None:
        self.images = 0
        self._classes: dict[int, _Class] = {}

    def add(self, found: Sequence[tuple[int, float, int, int]], objects: Mapping[int, int]) -> None:
        """Add an image: category, score, `right` and `ignored` of its detections, its objects by category."""
        for category, score, right, ignored in found:
            one = self._classes.setdefault(category, _Class())
            one.scores.append(score)
            one.right.append(right)
            one.ignored.append(ignored)
            one.images.append(self.images)
            one.is_sorted = False
        for category, count in objects.items():
            one = self._classes.setdefault(category, _Class())
            one.object_images.append(self.images)
            one.objects.append(count)
        self.images += 1

    def precisions(self, weights: NDArray[Any] | None = None, *, absent_is_zero: bool = False) -> Reals:
        """Return the average precision of each overlap and class, [10, classes].

        `weights`: how often each image counts. A class without an object has none, or 0 with
        `absent_is_zero`, as in LiteRT's tool.
        """
        counts = np.ones(self.images) if weights is None else weights.astype(np.float64)
        made = [_precision(self._classes[category], counts) for category in sorted(self._classes)]
        kept = [one if one is not None else np.zeros(10) for one in made if one is not None or absent_is_zero]
        return np.stack(kept, axis=1) if kept else np.empty((len(OVERLAPS), 0))


def _precision(one: _Class, weights: Reals) -> Reals | None:
    objects = float(weights[np.frombuffer(one.object_images, np.intc)] @ np.frombuffer(one.objects, np.intc))
    if not objects:
        return None
    if not one.scores:
        return np.zeros(len(OVERLAPS))
    one.sort()
    weight = weights[np.frombuffer(one.images, np.intc)]
    bits = 1 << np.arange(len(OVERLAPS))[:, None]
    right = (np.frombuffer(one.right, np.uint16) & bits) != 0
    ignored = (np.frombuffer(one.ignored, np.uint16) & bits) != 0
    true, false = (right * weight).cumsum(axis=1), ((~right & ~ignored) * weight).cumsum(axis=1)
    precision = true / (true + false + np.spacing(1))
    # The precision at a recall is the best that is reached there or at any higher recall.
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    made = np.zeros(len(OVERLAPS))
    for row in range(len(OVERLAPS)):
        places = np.searchsorted(true[row] / objects, _RECALLS, side="left")
        made[row] = envelope[row][places[places < weight.size]].sum() / _RECALLS.size
    return made
