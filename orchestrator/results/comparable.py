"""The fields of a cell that comparisons read, under the names of `CellRecord`.

To compare two campaigns of thousands of cells, most of their records would be decoded for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from agent.wire.measurement import Latency, Measurement, Ratio
from agent.wire.messages import Reason
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import CellRecord, Imported, why_kept


@dataclass(frozen=True, slots=True)
class ComparedTimes:
    """The median in ms, with its 95 % interval."""

    p50: float | None
    ci95: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class ComparedQuality:
    """The compared fields of `Quality`."""

    void: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    allowance: float = 0.0
    blocks: int = 0
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedVariation:
    """The level of the interval, as in `Variation`."""

    level: str
    tunings: int


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: str | None


@dataclass(frozen=True, slots=True)
class ComparedFigures:
    """The part of a `Measurement` that is compared, and what decides whether it counts."""

    latency_ms: ComparedTimes
    accuracy: _Judged
    settings: dict[str, str]
    labelled: _Judged | None = None
    quality: ComparedQuality | None = None
    variation: ComparedVariation | None = None
    ratio: Ratio | None = None


_FIGURES: Final = TypeAdapter(ComparedFigures)


def compared_figures(measurement: str) -> ComparedFigures:
    """Take from a stored measurement, as JSON, what is compared; the rest of it is skipped."""
    return _FIGURES.validate_json(measurement)


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A cell of a campaign as far as it is compared."""

    cell_id: str
    model: str
    model_sha256: str
    delegate: str
    delegate_kind: str
    delegate_options: Mapping[str, Any]
    device: str
    device_name: str
    level: str
    status: str
    reason: Reason | None
    measurement: ComparedFigures | None
    environment: Mapping[str, str] = field(default_factory=dict)
    reused_from: str | None = None
    noise: DeviceNoise | None = None
    imported: Imported | None = None
    again: str | None = None

    @property
    def kept(self) -> str:
        """The reason of a kept result, as in `CellRecord.kept`."""
        return why_kept(self.status, self.again, self.reason)

    @property
    def struck_out(self) -> bool:
        """Whether the figures are struck out, as in `CellRecord.struck_out`."""
        m = self.measurement
        if m is None:
            return False
        return m.accuracy.verdict == "fail" or (m.labelled is not None and m.labelled.verdict == "fail")


Comparable: TypeAlias = CellRecord | ComparedCell
Times: TypeAlias = Latency | ComparedTimes
Figures: TypeAlias = Measurement | ComparedFigures


def void_reason(cell: Comparable) -> str | None:
    """Return the gravest reason why the figures of a result are never compared; None where they are."""
    if cell.imported is not None:
        return f"imported: measured by {cell.imported.tool}, not by this farm"
    quality = None if cell.measurement is None else cell.measurement.quality
    return None if quality is None else next(iter(quality.void), None)
