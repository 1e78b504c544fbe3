"""Matches the detections of two runs: boxes of the same class that overlap, the best first.

A detector's outputs are a list in the order of scores: two boxes of nearly equal scores may change places,
and what lies below every threshold of use is noise. So not the arrays are compared, but what they say.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runtime.judge.figures import Reals
from runtime.judge.kinds import Role

LEAST_SCORE: Final = 0.3
"""Score above which a detection is judged. Chosen: applications show none below it; what is lower depends on
rounding in a suppression that is all or nothing."""

QUANTA: Final = 2.0
"""Steps of the scores above which a detection is judged, if that is more: below, it is hardly above zero."""

OVERLAP: Final = 0.5
"""Intersection over union from which two boxes of a class are the same object, as COCO and Pascal VOC count
them at least."""

CLOSE: Final = 0.9
"""Intersection over union that partners have at least. Chosen: a box moved by 5 % of its width has 0.905; a
kernel's rounding moves it by less than a thousandth."""


@dataclass(frozen=True, slots=True)
class Detections:
    """Boxes [N, 4] by two opposite corners, their classes [N] and scores [N]."""

    boxes: Reals
    classes: Reals
    scores: Reals

    @classmethod
    def of(cls, parts: Mapping[Role, Reals]) -> "Detections":
        """Read them from a model's outputs; those behind the count are padding."""
        boxes = parts["boxes"].reshape(-1, 4)
        classes, scores = parts["classes"].reshape(-1), parts["scores"].reshape(-1)
        most = min(len(boxes), len(classes), len(scores))
        # The count may be a wrong one: no more is read than each of the parts has.
        if "count" in parts and parts["count"].size:
            most = max(0, min(most, round(float(parts["count"].flat[0]))))
        return cls(boxes[:most], classes[:most], scores[:most])


@dataclass(frozen=True, slots=True)
class Matching:
    """Counts of detections above the bound: with a partner, without, and added; the mean overlap of pairs."""

    matched: int
    missing: int
    added: int
    mean_iou: float | None

    def __add__(self, other: "Matching") -> "Matching":
        pairs = self.matched + other.matched
        total = sum(one.matched * (one.mean_iou or 0.0) for one in (self, other))
        added, missing = self.added + other.added, self.missing + other.missing
        return Matching(pairs, missing, added, total / pairs if pairs else None)


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of two lists. `ratio`: the error over its bound, inf for one that is no matter of more
    or less; `text` says what is wrong; `is_judged`: whether the reference has anything above the bound.
    """

    ratio: float
    text: str
    is_judged: bool
    bound: float
    matching: Matching


ScoreBound = Callable[[float], float]
"""Gives what a score may be off by, the largest error of honest runs given; above 0."""


def compared(
    r: Detections, y: Detections, runs: Sequence[Detections], quantum: float, allowed: ScoreBound
) -> Compared:
    """Compare detections with the reference's. `runs`: those of honest runs; `quantum`: the scores' step.

    A detection that an honest run lacks, or finds elsewhere, is undecided.
    """
    bound = max(LEAST_SCORE, QUANTA * quantum)
    partners = [partners_of(r, run) for run in runs]
    off = [
        abs(run.scores[j] - r.scores[i])
        for run, of_run in zip(runs, partners, strict=True)
        for i, (j, _) in of_run.items()
        if r.scores[i] > bound
    ]
    tolerance = allowed(float(max(off, default=0.0)))
    settled = [
        i
        for i in np.flatnonzero(r.scores > bound).tolist()
        if all(of_run.get(i, (0, 0.0))[1] >= CLOSE for of_run in partners)
    ]
    own = partners_of(r, y)
    pairs = [(i, *own[i]) for i in settled if i in own]
    missing = [i for i in settled if i not in own]
    known = {j for i, (j, _) in own.items() if r.scores[i] > bound or y.scores[j] - r.scores[i] <= tolerance}
    # An honest run may find what the reference does not.
    added = [
        j
        for j in np.flatnonzero(y.scores > bound + tolerance).tolist()
        if j not in known and not any(_has(run, y, j) for run in runs)
    ]
    overlaps = [iou for _, _, iou in pairs]
    matching = Matching(len(pairs), len(missing), len(added), float(np.mean(overlaps)) if overlaps else None)
    errors = [abs(float(y.scores[j] - r.scores[i])) for i, j, _ in pairs]
    ratio = max(max(errors, default=0.0) / tolerance, (1.0 - min(overlaps, default=1.0)) / (1.0 - CLOSE))
    faults = [f"{len(missing)} of {len(settled)} detections are missing"] if missing else []
    faults += [f"{len(added)} detections are added"] if added else []
    if overlaps and min(overlaps) < CLOSE:
        faults.append(f"a box overlaps its partner by {min(overlaps):.3g} < {CLOSE:g}")
    if errors and max(errors) > tolerance:
        faults.append(f"a score is off by {max(errors):.3g} > {tolerance:.3g}")
    return Compared(
        math.inf if missing or added else ratio, "; ".join(faults), bool(settled), bound, matching
    )


def partners_of(r: Detections, y: Detections) -> dict[int, tuple[int, float]]:
    """Return the partner of each of `r` that has one, and their overlap: by class, `r`'s best first."""
    found: dict[int, tuple[int, float]] = {}
    free = np.ones(len(y.scores), bool)
    # The best first, as evaluations of detectors assign them; each partner is taken once.
    for i in np.argsort(-r.scores, kind="stable").tolist():
        candidates = np.flatnonzero(free & (y.classes == r.classes[i]))
        if not candidates.size:
            continue
        overlaps = overlap(r.boxes[i], y.boxes[candidates])
        best = int(np.argmax(overlaps))
        if overlaps[best] >= OVERLAP:
            found[i] = (int(candidates[best]), float(overlaps[best]))
            free[candidates[best]] = False
    return found


def overlap(box: Reals, others: Reals) -> NDArray[np.float64]:
    """Return the intersection over union of a box with others; 0 where neither has an area."""
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    lows, highs = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    shared = np.maximum(np.minimum(high, highs) - np.maximum(low, lows), 0.0).prod(axis=1)
    union = (high - low).prod() + (highs - lows).prod(axis=1) - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0.0))


def _has(run: Detections, y: Detections, j: int) -> bool:
    same = run.classes == y.classes[j]
    return bool((overlap(y.boxes[j], run.boxes[same]) >= OVERLAP).any())
