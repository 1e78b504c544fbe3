"""Grades a cell: how well its figures are known.

It follows from what is stored, by `runtime.common.verdict`. A cell that was measured with a baseline is
graded by its ratio, in which the state of the machine cancels; its p50 has a grade of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.wire.measurement import Measurement
from orchestrator.results.records import ComparedCell, Figures, void_reason
from orchestrator.results.speedups import counts, half_of
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


def p50_grade(cell: ComparedCell) -> Graded | None:
    """Grade the median of a cell; None where there is none that counts."""
    if cell.measurement is None or not counts(cell):
        return None
    return _by_median(cell.measurement, void_reason(cell))


def grade_of(cell: ComparedCell) -> Graded | None:
    """Grade a cell by its stored ratio, else by its median; None where nothing of it counts."""
    if cell.measurement is None or not counts(cell):
        return None
    return _by_ratio(cell.measurement, void_reason(cell))


def grade_of_result(m: Measurement) -> Graded | None:
    """Grade what was measured, as `grade_of` does, whether it counts or not."""
    return _by_ratio(m, None if m.quality is None else next(iter(m.quality.void), None))


def _by_ratio(m: Figures, void: str | None) -> Graded | None:
    return (
        _by_median(m, void) if m.ratio is None else _graded(m, void, half_of(m.ratio.ci95), m.ratio.allowance)
    )


def _by_median(m: Figures, void: str | None) -> Graded | None:
    if m.latency_ms.p50 is None and void is None:
        return None
    return _graded(m, void, half_of(m.latency_ms.ci95), 0.0 if m.quality is None else m.quality.allowance)


def _graded(m: Figures, void: str | None, half: float | None, allowance: float) -> Graded:
    doubt = "" if m.quality is None else next(iter(m.quality.doubts), "")
    found = grade(half, allowance, void=void is not None, doubted=bool(doubt))
    if void is not None or found == "good":
        return Graded(found, half, allowance, void or "")
    if doubt:
        return Graded(found, half, allowance, doubt)
    if allowance > (half or 0.0):
        return Graded(
            found, half, allowance, f"others took {-math.expm1(-allowance):.1%} of the time of the rounds"
        )
    return Graded(found, half, allowance, "" if m.quality is None else next(iter(m.quality.facts), ""))
