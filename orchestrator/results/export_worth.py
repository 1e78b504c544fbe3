"""Exports the fields that qualify the figures of a result: grades, ratio, variation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.wire.measurement import Measurement
from orchestrator.results.grading import Graded, grade_of, p50_grade
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import paired_speedup, stored_ratio, was_measured_with


def measured_with(cells: Sequence[CellRecord]) -> Mapping[str, CellRecord]:
    """Return, by the cell's id, the baseline of the same campaign that each cell was measured with."""
    placed: dict[tuple[str, ...], list[CellRecord]] = {}
    for cell in cells:
        placed.setdefault((cell.campaign_id, cell.model, cell.level, cell.device), []).append(cell)
    found = {}
    for cell in cells:
        if (ratio := stored_ratio(cell)) is None:
            continue
        for one in placed.get((cell.campaign_id, cell.model, cell.level, ratio.device_id), ()):
            if was_measured_with(ratio, one):
                found[cell.cell_id] = one
    return found


def ratio_json(cell: CellRecord, baseline: CellRecord | None) -> dict[str, Any] | None:
    """Return the stored speed-up over the baseline that the cell was measured with."""
    ratio = stored_ratio(cell)
    if ratio is None:
        return None
    found = paired_speedup(ratio, cell, baseline)
    decided = {"verdict": found.verdict, "blocks_needed": found.blocks_needed}
    return ratio.model_dump(mode="json", exclude={"baseline_id", "device_id"}) | decided


def grades_json(cell: CellRecord) -> dict[str, Any]:
    """Return the grade of the cell with the numbers behind it, and that of its median alone."""
    graded, of_median = grade_of(cell), p50_grade(cell)
    return {
        **_numbers(graded),
        "grade_reason": None if graded is None else graded.reason or None,
        "p50_grade": None if of_median is None else _numbers(of_median),
    }


def _numbers(graded: Graded | None) -> dict[str, Any]:
    if graded is None:
        return {"grade": None, "half_width": None, "allowance": None}
    return {"grade": graded.grade, "half_width": graded.half, "allowance": graded.allowance}


def variation_json(m: Measurement | None) -> dict[str, Any] | None:
    """Return the level of the interval, the variation of each level, and each tuning's choices."""
    if m is None or m.variation is None:
        return None
    outcomes = [tuning.model_dump(mode="json") for tuning in m.tunings]
    return {**m.variation.model_dump(mode="json"), "outcomes": outcomes}
