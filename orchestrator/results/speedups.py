"""Speed-ups: the baseline of each cell, the ratio, and the verdict that its interval allows.

A ratio is *paired* where baseline and cell were measured in the same blocks: it is the one that is stored
with the cell's result. Any other is the quotient of two medians of different times, is called *unpaired*, and
carries no verdict.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from agent.wire.measurement import Latency, Ratio, baseline_id
from orchestrator.results.records import CellRecord, ComparedCell, Times, void_reason
from runtime.common import verdict as decided
from runtime.common.statistics import geometric_mean, quantile_for

Verdict: TypeAlias = Literal["faster", "slower", "same", "open", "void", "unpaired"]
"""`void`: one of the two results is, or was imported; `unpaired`: not measured in blocks."""

FLOORS_APART: Final = 2.0
"""Noise floors of a device by which a difference exceeds the noise. Chosen: the floor is what equal things
differed by in a few sessions; in another one they may differ by somewhat more."""


@dataclass(frozen=True, slots=True)
class SpeedUp:
    """The speed relative to the baseline, with the verdict; `against` names the baseline.

    `ci95`, `blocks` and what follows: of a paired ratio. `half` is the half width of its logarithm's interval
    (None: it has none), `blocks_needed` how many blocks would decide an open one (None: no number would).
    """

    ratio: float
    verdict: Verdict
    against: str
    ci95: tuple[float, float] | None = None
    blocks: int = 0
    half: float | None = None
    allowance: float = 0.0
    blocks_needed: int | None = None

    @property
    def paired(self) -> bool:
        """Whether baseline and cell were measured in the same blocks."""
        return self.blocks > 0

    @property
    def stays_open(self) -> str:
        """Return why no number of blocks would decide an open ratio; empty where one would."""
        if self.verdict != "open" or self.blocks_needed is not None:
            return ""
        return "others keep this machine busy" if self.allowance > decided.SAME else "too near to call"


_Cell = TypeVar("_Cell", bound=ComparedCell)


@dataclass(frozen=True, slots=True)
class Baselines(Generic[_Cell]):
    """The cells of the baseline delegate of one campaign, by model and level."""

    delegate: str | None
    cells: Mapping[tuple[str, str], Sequence[_Cell]]

    @classmethod
    def among(cls, delegate: str | None, cells: Sequence[_Cell]) -> "Baselines[_Cell]":
        """Return the baseline's cells of a campaign; none if it names no baseline."""
        found: dict[tuple[str, str], list[_Cell]] = {}
        for cell in cells:
            if delegate is not None and cell.delegate == delegate:
                found.setdefault((cell.model, cell.level), []).append(cell)
        return cls(delegate, found)

    def of(self, cell: ComparedCell) -> _Cell | None:
        """Return the baseline cell for the same model and level: the one that it was measured with, else the
        one on the same device, else the only one on the same host.
        """
        same_model = self.cells.get((cell.model, cell.level), ())
        ratio = None if cell.measurement is None else cell.measurement.ratio
        paired = [c for c in same_model if ratio is not None and _is_of(ratio, c)]
        on_host = [c for c in same_model if host_of(c.device) == host_of(cell.device)]
        # `beside` of templates/choices.js looks for a baseline in the last two ways, too.
        for found in (
            [c for c in paired if ratio is not None and c.device == ratio.device_id],
            paired,
            [c for c in same_model if c.device == cell.device],
            on_host if len(on_host) == 1 else [],
        ):
            if found:
                return found[0]
        return None


def host_of(device_id: str) -> str:
    """Return the agent's name, which a lab puts before the ids of its devices; empty on one machine."""
    return device_id.rpartition(".")[0]


def was_measured_with(ratio: Ratio, baseline: ComparedCell) -> bool:
    """Whether a ratio is over this cell's delegate, options and device, in this campaign or another."""
    return ratio.device_id == baseline.device and _is_of(ratio, baseline)


def _is_of(ratio: Ratio, baseline: ComparedCell) -> bool:
    return ratio.baseline_id == baseline_id(baseline.delegate_kind, baseline.delegate_options)


class Partners(Generic[_Cell]):
    """Cells, among which the baseline is found that one of their campaigns measured beside another."""

    def __init__(self, cells: Iterable[_Cell]) -> None:
        self._cells: dict[tuple[str, ...], list[_Cell]] = {}
        for cell in cells:
            self._cells.setdefault((cell.campaign_id, cell.model, cell.level, cell.device), []).append(cell)

    def of(self, cell: ComparedCell) -> _Cell | None:
        """Return the cell that a cell's stored ratio is over; None without one, or where it is not here."""
        if (ratio := stored_ratio(cell)) is None:
            return None
        there = self._cells.get((cell.campaign_id, cell.model, cell.level, ratio.device_id), ())
        return next((one for one in there if was_measured_with(ratio, one)), None)


def counts(cell: ComparedCell) -> bool:
    """Whether a cell is finished and its output right: only then its figures are results."""
    return cell.status == "done" and cell.measurement is not None and not cell.struck_out


def counted_latency(cell: CellRecord) -> Latency | None:
    """Return the latency of a cell that counts; None for every other one."""
    return cell.measurement.latency_ms if cell.measurement is not None and counts(cell) else None


def counted_times(cell: ComparedCell) -> Times | None:
    """Return the compared times of a cell that counts; None for every other one."""
    return cell.measurement.latency_ms if cell.measurement is not None and counts(cell) else None


def stored_ratio(cell: ComparedCell) -> Ratio | None:
    """Return the ratio over the baseline that the cell was measured with; None if its output is wrong."""
    return cell.measurement.ratio if cell.measurement is not None and counts(cell) else None


def speedup(cell: ComparedCell, baseline: ComparedCell | None) -> SpeedUp | None:
    """Return the speed-up over a baseline cell; None for the baseline itself and if a number is missing."""
    if baseline is None or baseline.cell_id == cell.cell_id:
        return None
    stored = stored_ratio(cell)
    if stored is not None and _is_of(stored, baseline):
        return paired_speedup(stored, cell, baseline)
    own, base = counted_times(cell), counted_times(baseline)
    if own is None or base is None or not own.p50 or not base.p50:
        return None
    void = void_reason(cell) is not None or void_reason(baseline) is not None
    against = f"{baseline.delegate}@{baseline.device}"
    return SpeedUp(base.p50 / own.p50, "void" if void else "unpaired", against)


def paired_speedup(ratio: Ratio, cell: ComparedCell, baseline: ComparedCell | None = None) -> SpeedUp:
    """Return the speed-up of a cell's stored ratio; `baseline` if its own result is known, too."""
    half, least = decided.half_of(ratio.ci95), least_difference(decided.DIFFERENT, cell, baseline)
    verdict: Verdict = decide(ratio.median, ratio.ci95, ratio.allowance, least)
    if any(one is not None and void_reason(one) is not None for one in (cell, baseline)):
        verdict = "void"
    needed = blocks_to_decide(ratio, least) if verdict == "open" else None
    return SpeedUp(
        ratio.median, verdict, ratio.against, ratio.ci95, ratio.blocks, half, ratio.allowance, needed
    )


def decide(
    ratio: float, interval: tuple[float, float] | None, allowance: float, different: float
) -> decided.Verdict:
    """Return the verdict of a ratio; what is no difference there is the same, however large it is."""
    same = max(decided.SAME, different)
    return decided.verdict(
        math.log(ratio), decided.half_of(interval), allowance, different=different, same=same
    )


def blocks_to_decide(ratio: Ratio, different: float = decided.DIFFERENT) -> int | None:
    """Return how many blocks, those that there are included, would decide an open ratio; None: no number."""
    units = ratio.tunings if ratio.tunings > 1 else ratio.blocks
    half, spread = decided.half_of(ratio.ci95), ratio.spread
    if spread is None and half is not None:
        # The results of older agents have no spread: their intervals were wide by the same square root.
        spread = half * math.sqrt(units) / quantile_for(units)
    needed = decided.blocks_to_decide(
        math.log(ratio.median),
        spread,
        ratio.allowance,
        blocks=units,
        different=different,
        same=max(decided.SAME, different),
    )
    # Where the units are tunings, each further one has as many blocks as those that there are.
    return None if needed is None else math.ceil(needed * ratio.blocks / units)


def least_difference(share: float, *cells: ComparedCell | None) -> float:
    """Return the smallest difference that may be called one: `share`, or that between equal things there."""
    floors = [cell.noise.floor for cell in cells if cell is not None and cell.noise is not None]
    return max(share, *(FLOORS_APART * floor for floor in floors)) if floors else share


@dataclass(frozen=True, slots=True)
class MeanSpeedUp:
    """A geometric mean over `count` models. It is of paired ratios alone, or of unpaired ones alone."""

    ratio: float
    count: int
    paired: bool


def mean_speedup(found: Sequence[SpeedUp]) -> MeanSpeedUp | None:
    """Return the geometric mean of the paired ratios; of the unpaired ones if there is no other; else None.

    No void one is in it.
    """
    whole = [one for one in found if one.verdict != "void"]
    chosen = [one for one in whole if one.paired] or whole
    if not chosen:
        return None
    return MeanSpeedUp(geometric_mean(one.ratio for one in chosen), len(chosen), chosen[0].paired)
