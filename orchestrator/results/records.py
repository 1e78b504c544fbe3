"""Campaigns and cells of the database as frozen values.

`db.read.records` makes them; the CLI, the endpoint and the site only read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agent.wire.messages import Measurement, Reason


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


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One model x delegate x device x level, with its newest counted result.

    `reused_from`: id of the cell whose result is shown because the fingerprint was equal, else None.
    `device`: the device's id, or "-" where no device could take the cell.
    """

    cell_id: str
    campaign: str
    campaign_id: str
    model: str
    model_sha256: str
    model_bytes: int
    delegate: str
    delegate_kind: str
    delegate_options: dict[str, Any]
    device: str
    device_name: str
    level: str
    status: str
    reason: Reason | None
    measurement: Measurement | None
    environment_id: str | None
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    attempts: tuple[AttemptRecord, ...] = ()
    reused_from: str | None = None
    finished_at: datetime | None = None

    @property
    def struck_out(self) -> bool:
        """True where the output was wrong: the latency is kept as evidence, never shown as a result."""
        m = self.measurement
        if m is None:
            return False
        return m.accuracy.verdict == "fail" or (m.labelled is not None and m.labelled.verdict == "fail")

    @property
    def memory_peak_bytes(self) -> int | None:
        """Growth of the runner's memory; None where nothing was measured (a report of fallbacks alone)."""
        m = self.measurement
        return None if m is None or m.samples == 0 else m.memory_peak_bytes

    @property
    def memory_peak_cold_bytes(self) -> int | None:
        """The same of the cold process; None in results from before it was measured alone."""
        m = self.measurement
        return None if m is None or m.samples == 0 else m.memory_peak_cold_bytes or None


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """One submission.

    `submitted_at`: the last submission; to submit an unfinished campaign again renews it. `baseline`: name of
    the delegate over which speed-ups are taken. `counts`: number of cells by status.
    """

    campaign_id: str
    name: str
    submitted_at: datetime
    level: str
    baseline: str | None
    manifest_sha256: str
    models: tuple[str, ...]
    delegates: tuple[str, ...]
    labels: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    priority: int = 0
    paused: bool = False
