"""Speed-ups: the baseline of each cell, the ratio, and the verdict that its interval allows.

A ratio is *paired* where baseline and cell were measured in the same blocks: it is the one that is stored
with the cell's result. Any other is the quotient of two medians of different times, is called *unpaired*, and
carries no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agent.wire.measurement import Latency, Ratio, baseline_id
from orchestrator.results.comparable import Comparable, Times
from orchestrator.results.doubt import doubt
from orchestrator.results.records import CellRecord

Verdict: TypeAlias = Literal["faster", "slower", "same", "inconclusive", "doubtful", "few", "unpaired"]
"""`doubtful`: one of the two results is suspect or invalid; `few`: paired, but in fewer blocks than a verdict
needs; `unpaired`: not measured in blocks at all."""

MIN_BLOCKS_FOR_VERDICT: Final = 5
"""Blocks below which no verdict is given. Chosen with the level `standard`, which has as many: a t interval
over fewer is wide, and what it excludes by luck looks like a finding."""

SAME_WITHIN: Final = 0.02
"""Relative difference within which two cells count as equally fast. Chosen: two builds that are the same
differ by up to 2 %, through where memory and code happen to lie. Larger hides small gains."""

FLOORS_APART: Final = 2.0
"""Noise floors of a device by which a difference exceeds the noise. Chosen: the floor is what equal things
differed by in a few sessions; in another one they may differ by somewhat more."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """How many times as fast as the baseline, with the verdict; `against` names the baseline.

    `ci95` and `blocks`: of a paired ratio; None and 0 of another one.
    """

    ratio: float
    verdict: Verdict
    against: str
    ci95: tuple[float, float] | None = None
    blocks: int = 0

    @property
    def paired(self) -> bool:
        """Whether baseline and cell were measured in the same blocks."""
        return self.verdict != "unpaired"


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
        """The baseline cell for the same model and level: the one that it was measured with, else the one on
        the same device, else the only one on the same host.
        """
        same_model = [c for c in self.cells if (c.model, c.level) == (cell.model, cell.level)]
        ratio = None if cell.measurement is None else cell.measurement.ratio
        paired = [c for c in same_model if ratio is not None and _is_of(ratio, c)]
        on_host = [c for c in same_model if _host(c) == _host(cell)]
        for found in (
            [c for c in paired if ratio is not None and c.device == ratio.device_id],
            paired,
            [c for c in same_model if c.device == cell.device],
            on_host if len(on_host) == 1 else [],
        ):
            if found:
                return found[0]
        return None


def _host(cell: CellRecord) -> str:
    """The agent's name, which a lab puts before the ids of its devices."""
    return cell.device.rpartition(".")[0]


def was_measured_with(ratio: Ratio, baseline: Comparable) -> bool:
    """Whether a ratio is over this cell's delegate, options and device, in this campaign or another."""
    return ratio.device_id == baseline.device and _is_of(ratio, baseline)


def _is_of(ratio: Ratio, baseline: Comparable) -> bool:
    return ratio.baseline_id == baseline_id(baseline.delegate_kind, baseline.delegate_options)


def counts(cell: Comparable) -> bool:
    """Whether a cell is finished and its output right: only then its figures are results."""
    return cell.status == "done" and cell.measurement is not None and not cell.struck_out


def counted_latency(cell: CellRecord) -> Latency | None:
    """The latency of a cell that counts; None for every other one."""
    return cell.measurement.latency_ms if cell.measurement is not None and counts(cell) else None


def counted_times(cell: Comparable) -> Times | None:
    """As much of it as is compared."""
    return cell.measurement.latency_ms if cell.measurement is not None and counts(cell) else None


def stored_ratio(cell: Comparable) -> Ratio | None:
    """The ratio over the baseline that the cell was measured with; None where its output is wrong."""
    return cell.measurement.ratio if cell.measurement is not None and counts(cell) else None


def speedup(cell: CellRecord, baseline: CellRecord | None) -> SpeedUp | None:
    """The speed-up over a baseline cell; None for the baseline itself and where a number is missing."""
    if baseline is None or baseline.cell_id == cell.cell_id:
        return None
    stored = stored_ratio(cell)
    if stored is not None and _is_of(stored, baseline):
        verdict = ratio_verdict(stored, cell, baseline)
        return SpeedUp(stored.median, verdict, stored.against, stored.ci95, stored.blocks)
    own, base = counted_latency(cell), counted_latency(baseline)
    if own is None or base is None or not own.p50 or not base.p50:
        return None
    return SpeedUp(base.p50 / own.p50, "unpaired", f"{baseline.delegate}@{baseline.device}")


def ratio_verdict(ratio: Ratio, cell: CellRecord, baseline: CellRecord | None = None) -> Verdict:
    """Return the verdict of a cell's paired ratio; `baseline` where its own result is known, too."""
    if doubt(cell) is not None or doubt(baseline) is not None:
        return "doubtful"
    return verdict_of(ratio, least_difference(SAME_WITHIN, cell, baseline))


def least_difference(share: float, *cells: Comparable | None) -> float:
    """Return the smallest difference that may be called one: `share`, or that between equal things there."""
    floors = [cell.noise_floor for cell in cells if cell is not None and cell.noise_floor is not None]
    return max(share, *(FLOORS_APART * floor for floor in floors)) if floors else share


def verdict_of(ratio: Ratio, within: float = SAME_WITHIN) -> Verdict:
    """Return what a paired ratio's interval says: all of it beyond `within`, or all of it inside."""
    if ratio.blocks < MIN_BLOCKS_FOR_VERDICT or ratio.ci95 is None:
        return "few"
    low, high = ratio.ci95
    if low > 1.0 + within:
        return "faster"
    if high < 1.0 / (1.0 + within):
        return "slower"
    return "same" if low >= 1.0 / (1.0 + within) and high <= 1.0 + within else "inconclusive"


@dataclass(frozen=True, slots=True)
class MeanSpeedUp:
    """A geometric mean over `count` models. It is of paired ratios alone, or of unpaired ones alone."""

    ratio: float
    count: int
    paired: bool


def mean_speedup(found: Sequence[SpeedUp]) -> MeanSpeedUp | None:
    """The geometric mean of the paired ratios; of the unpaired ones where there is no other; else None."""
    paired = [one.ratio for one in found if one.paired]
    chosen = paired or [one.ratio for one in found]
    mean = geometric_mean(chosen)
    return None if mean is None else MeanSpeedUp(mean, len(chosen), bool(paired))


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """Return exp(mean(ln r)) of positive ratios, or None where there are none."""
    if not ratios:
        return None
    return math.exp(math.fsum(math.log(r) for r in ratios) / len(ratios))
