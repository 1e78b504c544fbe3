"""Budgets: limits that a cell's figures must keep, judged by their intervals.

`p50<=5ms` is met where the whole 95 % interval of p50 is at most 5 ms, exceeded where all of it is above, and
inconclusive where the limit lies inside: a limit that is met by luck will be missed by luck tomorrow. A
figure that has no interval at all (memory, init) is judged by itself. A doubtful result is inconclusive: a
time of a disturbed measurement, any figure of an invalid one. `ratio<=1.05` is judged in the same way by the
interval of p50 over that of an earlier campaign, which was not measured interleaved; where that one has no
right result of the cell, it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from orchestrator.manifest.budget import MEMORIES, RATIO, Budget
from orchestrator.results.doubt import doubt
from orchestrator.results.records import CellRecord
from orchestrator.results.regression import Change, Report
from orchestrator.results.speedups import counted_latency

Outcome: TypeAlias = Literal["met", "exceeded", "inconclusive", "no_result"]

_INTERVALS: Final = {"p50": "ci95", "p90": "p90_ci95", "p99": "p99_ci95"}


@dataclass(frozen=True, slots=True)
class Judged:
    """One budget of one cell. `said` explains the outcome in figures."""

    cell: CellRecord
    budget: Budget
    outcome: Outcome
    said: str


def judge_budgets(
    cells: Iterable[CellRecord], budgets: Sequence[Budget], earlier: Report | None = None
) -> list[Judged]:
    """Judge every budget of every cell; one that is `unsupported` has no figure to judge, and an earlier
    result that stands while there is no newer one is not judged for it.

    `earlier`: the comparison with an earlier campaign, whose second side these cells are.
    """
    changes = {} if earlier is None else {c.second.cell_id: c for c in earlier.changes if c.second}
    return [
        Judged(cell, budget, "no_result", cell.kept)
        if cell.kept
        else _judged_ratio(cell, budget, changes.get(cell.cell_id))
        if budget.figure == RATIO
        else _judged(cell, budget)
        for cell in cells
        for budget in budgets
        if cell.status != "unsupported"
    ]


def _judged_ratio(cell: CellRecord, budget: Budget, change: Change | None) -> Judged:
    if counted_latency(cell) is None:
        return Judged(cell, budget, "no_result", _figure(cell, "p50")[2])
    if change is None or change.estimate is None:
        why = "there is no earlier campaign" if change is None else change.why
        return Judged(cell, budget, "inconclusive", f"nothing to compare with: {why}")
    found = change.estimate
    said = f"{found.ratio:.3f}"
    if found.ci95 is not None:
        said += f" [{found.ci95[0]:.3f} to {found.ci95[1]:.3f}]"
    said += " of the earlier p50" + ("" if found.blocks else ", unpaired")
    if change.is_one_result:
        # Nothing was measured again, because nothing that a result depends on has changed.
        return Judged(
            cell, budget, "met" if budget.limit >= 1.0 else "exceeded", f"{said}; one result, reused"
        )
    if change.doubtful or found.ci95 is None:
        return Judged(cell, budget, "inconclusive", f"{said}; {change.why}")
    low, high = found.ci95
    if high <= budget.limit:
        return Judged(cell, budget, "met", said)
    return Judged(cell, budget, "exceeded" if low > budget.limit else "inconclusive", said)


def _judged(cell: CellRecord, budget: Budget) -> Judged:
    value, interval, why = _figure(cell, budget.figure)
    if value is None:
        return Judged(cell, budget, "no_result", why)
    shown = _shown(value, budget.figure)
    if (doubted := _doubted(cell, budget.figure)) is not None:
        return Judged(cell, budget, "inconclusive", f"{shown}, {doubted}")
    if interval is None:
        if budget.figure in _INTERVALS:
            return Judged(cell, budget, "inconclusive", f"{shown} without an interval: {why}")
        return Judged(cell, budget, "met" if value <= budget.limit else "exceeded", shown)
    said = f"{shown} [{_shown(interval[0], budget.figure)} to {_shown(interval[1], budget.figure)}]"
    if interval[1] <= budget.limit:
        return Judged(cell, budget, "met", said)
    return Judged(cell, budget, "exceeded" if interval[0] > budget.limit else "inconclusive", said)


def _doubted(cell: CellRecord, figure: str) -> str | None:
    """Neighbours make a program slower, not larger."""
    disturbed = cell.trust is not None and cell.trust.verdict == "suspect"
    return None if figure in MEMORIES and disturbed else doubt(cell)


def _figure(cell: CellRecord, name: str) -> tuple[float | None, tuple[float, float] | None, str]:
    """The value, its interval where it has one, and why one of them is missing."""
    latency = counted_latency(cell)
    if latency is None or cell.measurement is None:
        reason = "" if cell.reason is None else f" ({cell.reason.code}: {cell.reason.text})"
        return None, None, f"{'wrong output' if cell.struck_out else cell.status}{reason}"
    if name in MEMORIES:
        return getattr(cell, MEMORIES[name]), None, "not recorded"
    value: Any = getattr(latency, name)
    field = _INTERVALS.get(name, "")
    interval = getattr(latency, field) if field else None
    missing = latency.missing.get(field if value is not None else name, "not recorded")
    return value, interval, missing


def _shown(value: float, figure: str) -> str:
    return f"{value / 1e6:.4g} MB" if figure in MEMORIES else f"{value:.4g} ms"
