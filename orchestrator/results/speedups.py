"""Computes speed-ups: the baseline of each cell, the ratio, and the verdict that the intervals allow.

A ratio is only called faster or slower where the 95 % intervals of both medians exist and do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent.wire.messages import Latency
from orchestrator.results.records import CellRecord

Verdict: TypeAlias = Literal["faster", "slower", "overlap", "unjudged"]
"""The verdict of the two intervals: `overlap` where they overlap, `unjudged` where one is missing."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """Baseline p50 / own p50, over 1 where the cell is faster, with the verdict."""

    ratio: float
    verdict: Verdict
    baseline: CellRecord


@dataclass(frozen=True, slots=True)
class Baselines:
    """The cells of the baseline delegate of one campaign."""

    delegate: str | None
    cells: tuple[CellRecord, ...]

    @classmethod
    def among(cls, delegate: str | None, cells: Sequence[CellRecord]) -> Baselines:
        """The baseline's cells of a campaign; none where it names no baseline."""
        return cls(delegate, tuple(c for c in cells if delegate is not None and c.delegate == delegate))

    def of(self, cell: CellRecord) -> CellRecord | None:
        """The baseline cell for the same model and level: on the same device, else on the only other one."""
        same_model = [c for c in self.cells if (c.model, c.level) == (cell.model, cell.level)]
        on_device = [c for c in same_model if c.device == cell.device]
        if on_device:
            return on_device[0]
        return same_model[0] if len(same_model) == 1 else None


def counted_latency(cell: CellRecord) -> Latency | None:
    """The latency of a finished cell whose output is right; None for every other cell."""
    if cell.measurement is None or cell.struck_out or cell.status != "done":
        return None
    return cell.measurement.latency_ms


def speedup_ratio(cell: CellRecord, baseline: CellRecord | None) -> float | None:
    """Baseline p50 / own p50; None where either is missing."""
    own = counted_latency(cell)
    base = None if baseline is None else counted_latency(baseline)
    if own is None or base is None or not own.p50 or not base.p50:
        return None
    return base.p50 / own.p50


def speedup(cell: CellRecord, baseline: CellRecord | None) -> SpeedUp | None:
    """The speed-up over a baseline cell; None for the baseline itself and where a number is missing."""
    ratio = speedup_ratio(cell, baseline)
    if ratio is None or baseline is None or baseline.cell_id == cell.cell_id:
        return None
    return SpeedUp(ratio, _verdict(counted_latency(cell), counted_latency(baseline)), baseline)


def _verdict(own: Latency | None, base: Latency | None) -> Verdict:
    if own is None or base is None or own.ci95 is None or base.ci95 is None:
        return "unjudged"
    if own.ci95[1] < base.ci95[0]:
        return "faster"
    return "slower" if own.ci95[0] > base.ci95[1] else "overlap"


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """Return exp(mean(ln r)) of positive ratios, or None where there are none."""
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))
