"""Stores results of other tools: a campaign whose cells have ended, on devices that no agent has.

Their series and fingerprints are of the file that they came from, so that nothing ever reuses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select

from agent.wire.measurement import Measurement
from agent.wire.messages import ReasonCode
from agent.wire.plan import MeasurePlan
from orchestrator.db import tables
from orchestrator.db.devices.devices import record_environment
from orchestrator.db.engine import identity
from orchestrator.db.engine.dialects import insert_missing
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import AttemptState, CellState

LEVEL = "imported"
"""The level of an imported cell: how thoroughly another tool measured is not told in this farm's words."""


@dataclass(frozen=True, slots=True)
class ImportedCell:
    """One result with its names. `facts`: its origin, as `orchestrator.results.records` names them.

    Without a `measurement` it failed, for the `reason`.
    """

    model: str
    delegate: str
    kind: str
    device: str
    measurement: Measurement | None
    facts: dict[str, str]
    reason: str = ""


def find(turn: Turn, content: str) -> str | None:
    """Return the id of the campaign of an equal earlier import, or None."""
    query = select(tables.Campaign.campaign_id).where(tables.Campaign.content == content)
    return turn.exec(query.order_by(col(tables.Campaign.no).desc())).first()


def add(
    turn: Turn, name: str, content: str, cells: Sequence[ImportedCell], submitted_by: str, now: datetime
) -> str:
    """Store the results as one campaign; returns its id."""
    campaign = tables.Campaign(
        campaign_id=identity.campaign_id(),
        name=name,
        created_at=now,
        submitted_at=now,
        level=LEVEL,
        reuse="never",
        manifest_sha256=content,
        content=content,
        model_names=list(dict.fromkeys(cell.model for cell in cells)),
        delegate_names=list(dict.fromkeys(cell.delegate for cell in cells)),
        labels={},
        ended_at=now,
        submitted_by=submitted_by,
    )
    turn.add(campaign)
    environment = record_environment(turn, {})
    insert_missing(turn, tables.Model, [{"sha256": tables.NO_FILE, "size_bytes": 0, "added_at": now}])
    _add_devices(turn, dict.fromkeys(cell.device for cell in cells), environment, now)
    turn.flush()
    for position, cell in enumerate(cells):
        _add_cell(turn, campaign, position, cell, environment, now)
    return campaign.campaign_id


def device_id(name: str) -> str:
    """Return the id of a device of imported results; no agent's device can have it."""
    return f"imported:{name}"


def _add_devices(turn: Turn, names: Sequence[str] | dict[str, None], environment: str, now: datetime) -> None:
    if turn.get(tables.Agent, tables.IMPORTS) is None:
        turn.add(
            tables.Agent(
                agent_id=tables.IMPORTS, host="", version="", protocol=0, missing=[], seen_at=now,
                state=tables.AGENT_REMOVED,
            )
        )  # fmt: skip
    # Before the devices, which name it.
    turn.flush()
    for name in names:
        if turn.get(tables.Device, device_id(name)) is None:
            turn.add(
                tables.Device(
                    device_id=device_id(name), agent_id=tables.IMPORTS, kind="cpu", api="host", name=name,
                    vendor="", delegates=[], exclusion_group=device_id(name), environment_id=environment,
                    facts={}, labels={}, present=False,
                )
            )  # fmt: skip


def _add_cell(
    turn: Turn,
    campaign: tables.Campaign,
    position: int,
    imported: ImportedCell,
    environment: str,
    now: datetime,
) -> None:
    key = digest({"imported": imported.facts, "position": position})
    device = device_id(imported.device)
    attempt_id = identity.attempt_id()
    state, attempted, code = CellState.DONE, AttemptState.DONE, ReasonCode.COMPLETED
    if imported.measurement is None:
        state, attempted, code = CellState.FAILED, AttemptState.FAILED, ReasonCode.RUNNER_ERROR
    cell = tables.Cell(
        cell_id=identity.cell_id(campaign.campaign_id, key),
        # It has a number since `add` has flushed.
        campaign_no=campaign.no or 0,
        key=key,
        series=key,
        position=position,
        model=imported.model,
        model_sha256=tables.NO_FILE,
        delegate=imported.delegate,
        delegate_kind=imported.kind,
        delegate_options={},
        target=device,
        level=LEVEL,
        plan=MeasurePlan(min_blocks=1, max_blocks=1).model_dump(mode="json"),
        inputs={},
        soft_limit_s=0.0,
        state=state.value,
        reason_code=code.value,
        reason_text=imported.reason,
        ended_at=now,
        shown_attempt_id=attempt_id,
        line=device,
        device_id=device,
    )
    # Written at once: SQLAlchemy does not know that attempts name cells, and results attempts.
    turn.add(cell)
    turn.flush()
    attempt = tables.Attempt(
        attempt_id=attempt_id, cell_id=cell.cell_id, attempt_no=1, device_id=device, exclusion_group=device,
        epoch=0, state=attempted.value, reason_code=code.value, dispatched_at=now,
        ended_at=now,
    )  # fmt: skip
    turn.add(attempt)
    turn.flush()
    turn.add(
        tables.Result(
            attempt_id=attempt_id,
            cell_id=cell.cell_id,
            device_id=device,
            epoch=0,
            status=state.value,
            reason_code=code.value,
            reason_text=imported.reason,
            measurement=None if imported.measurement is None else imported.measurement.model_dump_json(),
            environment_id=environment,
            facts=imported.facts,
            log_tail="",
            duration_ns=0,
            series=key,
            fingerprint=key,
            content=key,
            counted=True,
            late=False,
            received_at=now,
        )
    )
