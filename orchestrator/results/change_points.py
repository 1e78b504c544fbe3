"""Finds where a series of figures changed for good, and by how much since its best.

The method is that of Otava, formerly Hunter (Fleming et al., "Hunter: Using Change Point Detection to Hunt
for Performance Regressions", ICPE 2023): E-divisive means (Matteson and James, JASA 109, 2014, with the
exponent 1) propose where a segment is divided, Student's t-test decides, and points that a wide first pass
found are taken back, the weakest first, until each of them is significant among its neighbours.

Every segment is also compared with the best one before it (the *pinned best*), so that steps that are too
small to be told, or to matter, add up.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from runtime.common import student

_P: Final = 0.001
"""Largest probability, under no change, of a change that is reported: Hunter's default."""

_P_FIRST: Final = 0.01
"""That of the first pass, which proposes: ten times as much, as in Hunter. A point beside a larger change
becomes significant once that one divides the series."""

_FEWEST: Final = 2
"""Values of a segment. A single one between others is an outlier; at the end it may be a change."""

LONGEST: Final = 400
"""Values that are looked at, the newest: the work grows with the square of their number."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level. `index`: its first value; `after`: how many values there are from it to the next.

    `step`: logarithm of the new mean over the one before; `since_best`: over that of the segment with the
    least mean until then, which begins at `best`. `p`: the probability of such a step under no change.
    """

    index: int
    after: int
    step: float
    since_best: float
    best: int
    p: float


def changes_of(logs: Sequence[float], accepted: Collection[int] = ()) -> tuple[Change, ...]:
    """Return the changes of a series of logarithms in order of time; less is better.

    From a change whose index is `accepted`, its own level is the best to compare with.
    """
    if not logs:
        return ()
    skipped = max(0, len(logs) - LONGEST)
    values = logs[skipped:]
    cuts = _strong(values, _proposed(values, 0, len(values)))
    bounds = [0, *cuts, len(values)]
    means = [_mean(values[a:b]) for a, b in pairwise(bounds)]
    found, best = [], 0
    for place, cut in enumerate(cuts, start=1):
        if means[place - 1] < means[best]:
            best = place - 1
        found.append(
            Change(
                index=skipped + cut,
                after=bounds[place + 1] - cut,
                step=means[place] - means[place - 1],
                since_best=means[place] - means[best],
                best=skipped + bounds[best],
                p=_p(values[bounds[place - 1] : cut], values[cut : bounds[place + 1]]),
            )
        )
        if skipped + cut in accepted:
            best = place
    return tuple(found)


def _proposed(values: Sequence[float], start: int, end: int) -> list[int]:
    """Return the points of a segment at which the first pass divides it, in order."""
    cut = _best_cut(values[start:end], is_last=end == len(values))
    if cut is None or _p(values[start : start + cut], values[start + cut : end]) > _P_FIRST:
        return []
    # At most `LONGEST` levels deep, far from Python's limit.
    middle = start + cut
    return [*_proposed(values, start, middle), middle, *_proposed(values, middle, end)]


def _strong(values: Sequence[float], cuts: Sequence[int]) -> list[int]:
    """Take back the weakest point until all that remain are significant."""
    kept = list(cuts)
    while kept:
        bounds = [0, *kept, len(values)]
        weights = [
            _p(values[bounds[i] : bounds[i + 1]], values[bounds[i + 1] : bounds[i + 2]])
            for i in range(len(kept))
        ]
        weakest = max(range(len(kept)), key=weights.__getitem__)
        if weights[weakest] <= _P:
            break
        del kept[weakest]
    return kept


def _best_cut(values: Sequence[float], *, is_last: bool) -> int | None:
    """Return where the two parts differ most by E-divisive's Q; None where there is no room for two.

    With the sums of |x - y| between the parts and within each, moving one value from the right part to the
    left one changes each sum by that value's distances alone.
    """
    count = len(values)
    last = count - (1 if is_last else _FEWEST)
    between = left = 0.0
    right = math.fsum(abs(x - y) for i, x in enumerate(values) for y in values[:i])
    best, found = 0.0, None
    for cut in range(1, last + 1):
        moved = values[cut - 1]
        to_left = math.fsum(abs(moved - other) for other in values[: cut - 1])
        to_right = math.fsum(abs(moved - other) for other in values[cut:])
        between += to_right - to_left
        left, right = left + to_left, right - to_right
        # Too short a left part is passed over only here: its distances belong to the sums all the same.
        if cut < _FEWEST:
            continue
        m, n = cut, count - cut
        # Matteson and James' Q: twice the mean distance between the parts less the mean ones within each,
        # scaled by the sizes of the parts.
        spread = 2.0 * between / (m * n) - _within(left, m) - _within(right, n)
        q = m * n / (m + n) * spread
        if q > best:
            best, found = q, cut
    return found


def _within(total: float, count: int) -> float:
    return 2.0 * total / (count * (count - 1)) if count > 1 else 0.0


def _p(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability of Student's two-sided t-test with a common variance (1 where it has none)."""
    freedom = len(first) + len(second) - 2
    if freedom < 1:
        return 1.0
    means = _mean(first), _mean(second)
    squares = math.fsum((x - means[0]) ** 2 for x in first) + math.fsum((x - means[1]) ** 2 for x in second)
    error = math.sqrt(squares / freedom * (1 / len(first) + 1 / len(second)))
    difference = means[1] - means[0]
    if error <= 0.0:
        return 0.0 if difference else 1.0
    return student.two_sided(difference / error, freedom)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
