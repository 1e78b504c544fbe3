"""Campaigns and cells of the database as frozen values.

`orchestrator.db.results.records` makes them; the CLI, the endpoint and the site only read them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from agent.wire.measurement import Latency, Measurement, Quality, Ratio
from agent.wire.messages import Reason, ReasonCode, environment_id
from agent.wire.plan import InputSpec, MeasurePlan
from agent.wire.provenance import conditions_of, versions_of
from orchestrator.results.device_noise import DeviceNoise

WRONG_OUTPUT: Final = "wrong output"
BELOW: Final = "below at_least"
DROPPED: Final = "above max_drop"
"""What results are called that are struck out: the last two by labelled data, by the key that they break."""


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt at a cell. `state`: dispatched | running | done | failed | unsupported | cancelled."""

    attempt_id: str
    number: int
    device_id: str | None
    state: str
    reason: Reason | None
    started_at: datetime | None
    ended_at: datetime | None
    duration_ns: int | None = None
    log_tail: str = ""


IMPORTED_TOOL, IMPORTED_FILE, IMPORTED_SHA256 = "imported_tool", "imported_file", "imported_sha256"
"""The facts of a result that was imported: what measured it, and the file that says so."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The origin of a result that another tool measured: its file's name and SHA-256."""

    tool: str
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ComparedTimes:
    """The median in ms, with its 95 % interval, and other times to choose from on the site."""

    p50: float | None
    ci95: tuple[float, float] | None
    p99: float | None = None
    first: float | None = None
    init: float | None = None


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
class _Block:
    tuning: int = 0


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: str | None


@dataclass(frozen=True, slots=True)
class _Scored(_Judged):
    at_least: float | None = None
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class _Delegated:
    delegated_ops: int
    total_ops: int


@dataclass(frozen=True, slots=True)
class ComparedFigures:
    """The part of a `Measurement` that is compared, and what decides whether it counts."""

    latency_ms: ComparedTimes
    accuracy: _Judged
    settings: dict[str, str]
    labelled: _Scored | None = None
    quality: ComparedQuality | None = None
    variation: ComparedVariation | None = None
    ratio: Ratio | None = None
    delegation: _Delegated | None = None
    memory_peak_bytes: int = 0
    blocks: tuple[_Block, ...] = ()


_FIGURES: Final = TypeAdapter(ComparedFigures)


def compared_figures(measurement: str) -> ComparedFigures:
    """Take from a stored measurement, as JSON, what is compared; the rest of it is skipped."""
    return _FIGURES.validate_json(measurement)


Times: TypeAlias = Latency | ComparedTimes
Figures: TypeAlias = Measurement | ComparedFigures


def tunings_of(measurement: Figures) -> int:
    """Return how many tunings the interval of p50 is over; 1 at most: it is over blocks or processes."""
    if measurement.blocks:
        # Where blocks were added, `variation` knows those of the last attempt alone.
        return len({block.tuning for block in measurement.blocks})
    varied = measurement.variation
    return varied.tunings if varied is not None and varied.level == "tuning" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """The fields of a cell that comparisons read; most of two large campaigns' records is not among them.

    `device`: the device's id, or "-" where no device could take the cell. `reused_from`: id of the cell whose
    result is shown because the fingerprint was equal, else None. `noise`: by how much equal things differ on
    the device, None where that was not measured. `again`: while a `done` cell is measured again, how far that
    is: queued | dispatched | running. `facts`: at least those of an imported result.
    """

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
    measurement: Figures | None
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    reused_from: str | None = None
    noise: DeviceNoise | None = None
    again: str | None = None
    campaign_id: str = ""
    model_bytes: int = 0
    finished_at: datetime | None = None

    @property
    def conditions(self) -> dict[str, str]:
        """The machine and its settings, as the measuring process found them: a change cuts a series."""
        return conditions_of(self.environment)

    @property
    def versions(self) -> dict[str, str]:
        """The software, likewise: the axis of a history."""
        return versions_of(self.environment)

    @property
    def kept(self) -> str:
        """Why a result is shown although a newer one was asked for; empty where it is the newest."""
        if self.again is not None:
            return "measuring again"
        # A complete result has no reason: one beside `done` is of a later attempt, which failed.
        if self.status != "done" or self.reason is None:
            return ""
        return f"not measured again: {self.reason.code}: {self.reason.text}"

    @property
    def imported(self) -> Imported | None:
        """The origin of a result of another tool; None for one that this farm measured."""
        if IMPORTED_SHA256 not in self.facts:
            return None
        names = (IMPORTED_TOOL, IMPORTED_FILE, IMPORTED_SHA256)
        return Imported(*(self.facts.get(name, "") for name in names))

    @property
    def excluded(self) -> bool:
        """Whether the campaign's own rules leave it out."""
        return self.reason is not None and self.reason.code is ReasonCode.EXCLUDED

    @property
    def struck_out(self) -> bool:
        """True where the output was wrong: the latency is kept as evidence, never shown as a result."""
        m = self.measurement
        if m is None:
            return False
        return m.accuracy.verdict == "fail" or (m.labelled is not None and m.labelled.verdict == "fail")

    @property
    def struck_as(self) -> str:
        """The word for a struck out result: its output is wrong, or right but too inaccurate on labels."""
        m = self.measurement
        if m is None or m.labelled is None or m.accuracy.verdict == "fail":
            return WRONG_OUTPUT
        score = m.labelled
        is_below = score.at_least is not None and score.ci95 is not None and score.ci95[1] < score.at_least
        return BELOW if is_below else DROPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRecord(ComparedCell):
    """One model x delegate x device x level, with its newest counted result.

    `plan` and `inputs`: how, and on which data, it is measured; no plan where a farm of an older release does
    not tell it.
    """

    # Fields of `ComparedCell` stand here again where a whole record must have them, or has a narrower type.
    campaign: str
    campaign_id: str
    model_bytes: int
    delegate_options: dict[str, Any]
    measurement: Measurement | None
    environment_id: str | None
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    attempts: tuple[AttemptRecord, ...] = ()
    finished_at: datetime | None = None
    plan: MeasurePlan | None = None
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The state of its newest measurement; `status` is that of the result it shows."""
        return self.again or self.status

    @property
    def quality(self) -> Quality | None:
        """The basis of the figures; None if nothing was measured, and for another tool's."""
        return None if self.measurement is None else self.measurement.quality

    @property
    def conditions_id(self) -> str | None:
        """Digest of the conditions, as `environment_id` is that of conditions and versions."""
        return None if self.environment_id is None else environment_id(self.conditions)

    @property
    def memory_peak_bytes(self) -> int | None:
        """Growth of the runner's memory; None where nothing was measured (a report of fallbacks alone)."""
        m = self.measurement
        if m is None or m.samples == 0:
            return None
        # Another tool's file often has no memory, and a peak of nothing would look measured.
        return m.memory_peak_bytes or (None if self.imported else 0)

    @property
    def memory_peak_cold_bytes(self) -> int | None:
        """The same of the cold process; None in results from before it was measured alone."""
        m = self.measurement
        return None if m is None or m.samples == 0 else m.memory_peak_cold_bytes or None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGroup:
    """The cells of one model in a campaign, as they are known without reading them.

    `content` digests what comparisons read of them: it is another one as soon as one of them changes.
    `columns`: delegate, device or target, and level of each, once; `origins`: campaign and model of the cells
    whose results they show.
    """

    campaign_id: str
    model: str
    model_sha256: str
    count: int
    content: str
    columns: tuple[tuple[str, str, str], ...]
    origins: tuple[tuple[str, str], ...] = ()


_MOST_DIGITS: Final = 9
"""Digits of a number among the settings of a result. Real ones have at most three."""


def stated_count(settings: Mapping[str, str], name: str) -> int:
    """Return a whole number that the settings of a result state, which are texts of its agent's; else 0."""
    stated = settings.get(name, "")
    return int(stated) if stated.isdecimal() and len(stated) <= _MOST_DIGITS else 0


def void_reason(cell: ComparedCell) -> str | None:
    """Return the gravest reason why the figures of a result are never compared; None where they are."""
    if cell.imported is not None:
        return f"imported: measured by {cell.imported.tool}, not by this farm"
    quality = None if cell.measurement is None else cell.measurement.quality
    return None if quality is None else next(iter(quality.void), None)


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """The source of a model, as its campaign file states it, and its licence; None if that is not known."""

    source: str
    licence: str | None


@dataclass(frozen=True, slots=True)
class ManifestRecord:
    """The file of a campaign, without the credentials of its addresses, and the origins of its models.

    `file`: what messages called it. `chosen`: the part of it that was submitted, by options.
    """

    campaign_id: str
    name: str
    file: str
    document: str
    chosen: dict[str, Any]
    origins: dict[str, ModelOrigin]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignRecord:
    """One submission.

    `submitted_at`: the last submission; to submit an unfinished campaign again renews it. `baseline`: name of
    the delegate over which speed-ups are taken. `counts`: number of cells by status. `submitted_by`: a user
    of the endpoint, else ACCOUNT@HOST; empty where it is not known.
    """

    campaign_id: str
    name: str
    submitted_at: datetime
    submitted_by: str = ""
    level: str
    baseline: str | None
    manifest_sha256: str
    models: tuple[str, ...]
    delegates: tuple[str, ...]
    labels: dict[str, str] = field(default_factory=dict)
    priority: int = 0
    paused: bool = False
    counts: dict[str, int] = field(default_factory=dict)
