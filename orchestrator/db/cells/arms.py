"""Queries what can be measured in blocks together with a cell that is about to begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_
from sqlmodel import Session, col, select

from agent.wire.bounded import MAX_ARMS
from orchestrator.db import tables
from orchestrator.policy.assign import Assignment
from orchestrator.policy.blocks import baseline_device, compared_with
from orchestrator.policy.lifecycle import CellState


@dataclass(frozen=True, slots=True)
class Companions:
    """The waiting cells to measure together with a cell, and the device for the baseline (None: there is
    none).
    """

    cells: tuple[Assignment, ...] = ()
    baseline_device_id: str | None = None


def companions(session: Session, cell: tables.Cell, device: tables.Device, now: datetime) -> Companions:
    """Return the waiting cells of the same model and campaign on this host that share the cell's baseline."""
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    if campaign.baseline_kind is None or campaign.purpose != tables.MEASURE:
        return Companions()
    host = _devices(session, device)
    own = next(other for other in host if other.device_id == device.device_id)
    baseline = baseline_device(own, host, campaign.baseline_kind)
    if baseline is None:
        return Companions()
    together = [
        other.device_id
        for other in compared_with(baseline, host, campaign.baseline_kind)
        if other.quarantined_at is None and (other.rests_until is None or other.rests_until <= now)
    ]
    found = session.exec(
        select(tables.Cell.cell_id, tables.Cell.line)
        .where(
            tables.Cell.campaign_no == cell.campaign_no,
            tables.Cell.model == cell.model,
            tables.IS_QUEUED,
            col(tables.Cell.line).in_(together),
            tables.Cell.cell_id != cell.cell_id,
            or_(col(tables.Cell.not_before).is_(None), col(tables.Cell.not_before) <= now),
        )
        .order_by(col(tables.Cell.position))
        .limit(MAX_ARMS)
    )
    again = baseline.device_id if baseline.device_id in together else None
    return Companions(tuple(Assignment(*row) for row in found), again)


def baseline_is_done(session: Session, cell: tables.Cell, baseline: str) -> bool:
    """Whether the cell's model has a measured baseline in its campaign, which may be measured once more."""
    query = select(tables.Cell.cell_id).where(
        tables.Cell.campaign_no == cell.campaign_no,
        tables.Cell.model == cell.model,
        tables.Cell.delegate == baseline,
        or_(col(tables.Cell.state) == CellState.DONE.value, col(tables.Cell.shown_attempt_id).is_not(None)),
    )
    return session.exec(query.limit(1)).first() is not None


def _devices(session: Session, device: tables.Device) -> Sequence[tables.Device]:
    """Return the present devices of a device's host."""
    query = select(tables.Device).where(tables.Device.agent_id == device.agent_id, tables.Device.present)
    return session.exec(query.order_by(col(tables.Device.device_id))).all()
