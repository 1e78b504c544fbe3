"""Budgets: limits that a cell's figures must keep, judged by their intervals.

`p50<=5ms` is met where the whole 95 % interval of p50 is at most 5 ms, exceeded where all of it is above, and
inconclusive where the limit lies inside: a limit that is met by luck will be missed by luck tomorrow. A
figure that has no interval at all (memory, init) is judged by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from orchestrator.manifest.budget import MEMORIES, Budget
from orchestrator.results.records import CellRecord
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


def judge_budgets(cells: Iterable[CellRecord], budgets: Sequence[Budget]) -> list[Judged]:
    """Judge every budget of every cell; one that is `unsupported` has no figure to judge."""
    return [_judged(cell, budget) for cell in cells for budget in budgets if cell.status != "unsupported"]


def _judged(cell: CellRecord, budget: Budget) -> Judged:
    value, interval, why = _figure(cell, budget.figure)
    if value is None:
        return Judged(cell, budget, "no_result", why)
    shown = _shown(value, budget.figure)
    if interval is None:
        if budget.figure in _INTERVALS:
            return Judged(cell, budget, "inconclusive", f"{shown} without an interval: {why}")
        return Judged(cell, budget, "met" if value <= budget.limit else "exceeded", shown)
    said = f"{shown} [{_shown(interval[0], budget.figure)} to {_shown(interval[1], budget.figure)}]"
    if interval[1] <= budget.limit:
        return Judged(cell, budget, "met", said)
    return Judged(cell, budget, "exceeded" if interval[0] > budget.limit else "inconclusive", said)


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
