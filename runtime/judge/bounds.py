"""Bounds the distance of a right output from its reference: by several honest runs, and a floor besides.

Honest runs (`Draws`) are other kernels, other thread counts, moved inputs, rounded weights. An output may be
off by `FACTORS` times what the worst of them is, in every figure; of slices, those of the same place count.
A set in which the draws happen to agree is judged by what is usual for the model's other sets.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runtime.judge.figures import Figures, Reals, cosine, relative_norm
from runtime.judge.kinds import OutputKind

FACTORS: Final = {"rms": 1.75, "largest": 2.0, "mean": 2.0, "slope": 2.0, "slices": 2.0}
"""How much farther off than the worst honest run an output may be, by figure. Chosen: on the honest pairings
of `benchmarks/judge_power.py` nothing takes more than nineteen twentieths of a bound. Larger, and a wrong
kernel hides behind the scatter."""

STANDARD_ERRORS: Final = 5.0
"""Standard errors that a mean and a slope may be off besides. Chosen: errors are not quite independent; less,
and outputs of few values give alarms."""


MOVE: Final = 1e-6
"""Share of itself by which inputs, or weights, of an honest run are moved (`perturbed.py`). Chosen: some ten
roundings of float32, as another order of summation moves a sum; smaller, and it would vanish in the rounding
of the input itself."""

MOST_AMPLIFIED: Final = 0.2
"""Share of the reference's deviation from its mean by which honest runs may differ. Chosen: with more, an
output with a wrong scale lies within the bounds, and a pass would say nothing."""


MIN_CENTRED_COSINE: Final = 0.98
"""Smallest cosine of dequantised outputs, each less its mean, where there are no honest runs. Without the
mean, as a constant is nearly parallel to every flat output."""

MAX_RELATIVE: Final = 0.2
"""Largest ||y - r|| / ||r|| beside that cosine, which does not notice another scale."""

FEW_INDICES: Final = 0.005
"""Share of indices, as class ids are, that may differ beyond twice what honest runs differ by: where the two
best classes are nearly equal, a rounding decides."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The tolerance beside that of the draws, each in the unit of its figure."""

    rms: float
    largest: float
    mean: float
    slope: float
    slices: float


@dataclass(frozen=True, slots=True)
class Draws:
    """Figures of the honest runs of one output: `of_set[k]`, with the root mean square of its reference."""

    of_set: Sequence[Sequence[Figures]]
    scales: Sequence[float]

    def worst(self, figure: str, k: int) -> float:
        """Return the largest of a figure in set `k`, or what is usual in all sets if that is more."""
        own = self._worst_of(figure, k)
        others = [
            self._worst_of(figure, j) / _unit(figure, scale)
            for j, scale in enumerate(self.scales)
            if scale > 0.0
        ]
        usual = math.sqrt(sum(x**2 for x in others) / len(others)) if others else 0.0
        return max(own, usual * _unit(figure, self.scales[k]))

    def _worst_of(self, figure: str, k: int) -> float:
        return max((abs(getattr(one, figure)) for one in self.of_set[k]), default=0.0)

    def slices(self, way: str, k: int) -> Reals | float:
        """Return the largest norms of each slice in set `k`; 0 where there are no draws."""
        found = [one.slices[way] for one in self.of_set[k] if way in one.slices]
        return np.max(found, axis=0) if found else 0.0


def _unit(figure: str, scale: float) -> float:
    # A slope is a ratio already; the other figures have the output's unit.
    return 1.0 if figure == "slope" else scale


@dataclass(frozen=True, slots=True)
class Excess:
    """The error of an output by one rule, in bounds of that rule; at most 1 if the rule holds."""

    ratio: float
    text: str


def excesses(found: Figures, draws: Draws, k: int, floor: Floor, spread: float = 1.0) -> Iterator[Excess]:
    """Yield for each rule how far the errors `found` in set `k` are, over what is allowed.

    `spread`: how many times as large as a draw's error an honest one is expected to be.
    """
    usual = draws.worst("rms", k)

    def bound(figure: str, least: float, error: float = 0.0) -> float:
        return least + FACTORS[figure] * spread * draws.worst(figure, k) + STANDARD_ERRORS * error

    yield _excess(found.rms, bound("rms", floor.rms), "root mean square of y-r")
    largest = bound("largest", floor.largest)
    yield _excess(found.largest, largest, f"weighted error of value {found.place}")
    yield _excess(found.mean, bound("mean", floor.mean, found.mean_error), "mean of y-r")
    yield _excess(found.slope, bound("slope", floor.slope, found.slope_error), "slope of y-r over r")
    for way, norms in found.slices.items():
        own = np.broadcast_to(draws.slices(way, k), norms.shape)
        # A slice's own draws are few, so that what is usual of the whole output counts as well.
        bounds = floor.slices + FACTORS["slices"] * spread * np.hypot(own, usual)
        worst = np.unravel_index(np.argmax(norms / np.maximum(bounds, _LEAST)), norms.shape)
        where = f"weighted norm of {way} {','.join(map(str, worst))}"
        yield _excess(float(norms[worst]), float(bounds[worst]), where)


def cosine_excess(y: Reals, r: Reals) -> Excess:
    """Compare an output that no honest run is known of: by its direction, and roughly by its norm."""
    centred = cosine(r - r.mean(), y - y.mean())
    relative = relative_norm(y - r, r)
    share = math.inf if relative is None else relative
    off = max((1.0 - centred) / (1.0 - MIN_CENTRED_COSINE), share / MAX_RELATIVE)
    return Excess(off, f"centred cosine {centred:.6f}, |y-r|/|r| = {share:.3g}")


def index_excess(y: Reals, r: Reals, runs: Sequence[Reals]) -> Excess:
    """Compare class ids and the like, of which another one is no nearer for being the next."""
    if not r.size:
        return Excess(0.0, "")
    worst = max((float(np.mean(run != r)) for run in runs), default=0.0)
    bound, found = FEW_INDICES + 2.0 * worst, float(np.mean(r != y))
    return Excess(found / bound, f"{found:.3%} of the indices differ, allowed are {bound:.3%}")


def near_ties(values: Reals, bound: float, kind: OutputKind) -> NDArray[np.bool_]:
    """Return where the two best of the values that an index was chosen from are within `bound`.

    The values of one place lie along the kind's axis. Sorted ones are those chosen, each at its index's
    place: one is undecided where its neighbour before or behind is as near.
    """
    if kind.is_sorted:
        near = np.abs(np.diff(values, axis=-1)) <= bound
        edge = np.zeros((*values.shape[:-1], 1), np.bool_)
        return np.asarray(np.concatenate([edge, near], -1) | np.concatenate([near, edge], -1))
    ordered = np.sort(values, axis=kind.axis)
    if values.shape[kind.axis] < 2:
        return np.zeros(np.take(ordered, 0, kind.axis).shape, np.bool_)
    top, second = (0, 1) if kind.is_least else (-1, -2)
    gap = np.abs(np.take(ordered, top, kind.axis) - np.take(ordered, second, kind.axis))
    return np.asarray(gap <= bound)


_LEAST: Final = 1e-300
"""Stands for a bound of 0 where one is divided by."""


def _excess(value: float, bound: float, what: str) -> Excess:
    ratio = abs(value) / bound if bound > 0.0 else 0.0 if value == 0.0 else math.inf
    return Excess(ratio, f"{what}: {abs(value):.3g} > {bound:.3g}")
