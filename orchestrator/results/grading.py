"""The grade of a cell: what its figures are worth, by how well they are known.

It follows from what is stored, by `runtime.common.verdict`. A cell that was measured with a baseline is
graded by its ratio, in which the state of the machine cancels; its p50 has a grade of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.results.comparable import Comparable, void_reason
from orchestrator.results.speedups import counted_times, half_of, stored_ratio
from runtime.common.verdict import Grade, grade


@dataclass(frozen=True, slots=True)
class Graded:
    """The grade of a figure with its half width and allowance, both logarithms; `half` None: no interval.

    `reason`: the gravest one why it is void; of a fair or noisy one what is known to have kept it from being
    good, empty where nothing is.
    """

    grade: Grade
    half: float | None
    allowance: float
    reason: str = ""

    @property
    def known_to(self) -> float | None:
        """H: how far the true value may be to either side; None without an interval."""
        return None if self.half is None else self.half + self.allowance


def p50_grade(cell: Comparable) -> Graded | None:
    """Grade the median of a cell; None where there is none that counts."""
    times, quality = counted_times(cell), None if cell.measurement is None else cell.measurement.quality
    if times is None or (times.p50 is None and void_reason(cell) is None):
        return None
    return _graded(cell, half_of(times.ci95), 0.0 if quality is None else quality.allowance)


def grade_of(cell: Comparable) -> Graded | None:
    """Grade a cell by its stored ratio, else by its median; None where nothing of it counts."""
    ratio = stored_ratio(cell)
    return p50_grade(cell) if ratio is None else _graded(cell, half_of(ratio.ci95), ratio.allowance)


def _graded(cell: Comparable, half: float | None, allowance: float) -> Graded:
    void = void_reason(cell)
    found = grade(half, allowance, void=void is not None)
    if void is not None or found == "good":
        return Graded(found, half, allowance, void or "")
    if allowance > (half or 0.0):
        return Graded(found, half, allowance, f"others took {allowance:.1%} of the time of the rounds")
    quality = None if cell.measurement is None else cell.measurement.quality
    return Graded(found, half, allowance, "" if quality is None else next(iter(quality.facts), ""))
