"""Campaigns: adding one with all its cells, finding it again, cancelling, parking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from agent.messages import Reason, ReasonCode
from orchestrator.db import attempts, identity, tables
from orchestrator.fingerprint import digest
from orchestrator.lifecycle import AttemptState, CellState, cancelled_reason
from orchestrator.manifest.campaign import Campaign
from orchestrator.matrix import NO_DEVICE
from orchestrator.planning import PlannedCell

_PACE_FROM = 3


def content_of(campaign: Campaign, planned: Sequence[PlannedCell], reuse: str) -> str:
    """Digest of everything that was asked: an unfinished campaign with the same one is continued."""
    return digest(
        {
            "name": campaign.name,
            "manifest": campaign.manifest_sha256,
            "labels": dict(campaign.labels),
            "reuse": reuse,
            "cells": sorted(cell.spec.key for cell in planned if cell.action != "excluded"),
        }
    )


def find_unfinished(session: Session, content: str) -> tables.Campaign | None:
    """The newest campaign with this content that still has a cell to end and was not cancelled."""
    return session.exec(
        select(tables.Campaign)
        .where(
            tables.Campaign.content == content,
            col(tables.Campaign.cancel_asked_at).is_(None),
            col(tables.Campaign.no).in_(_open_campaigns()),
        )
        .order_by(col(tables.Campaign.no).desc())
    ).first()


def _open_campaigns() -> Any:
    return select(tables.Cell.campaign_no).where(col(tables.Cell.state).in_(tables.OPEN_WORDS)).distinct()


def resume(campaign: tables.Campaign, now: datetime) -> None:
    """Somebody submits the campaign again and waits for it."""
    campaign.submitted_at = now
    campaign.parked = False


def add(
    session: Session,
    campaign: Campaign,
    planned: Sequence[PlannedCell],
    content: str,
    reuse: str,
    now: datetime,
) -> str:
    """Store a campaign with its cells; excluded ones are not stored. Returns its id."""
    row = tables.Campaign(
        campaign_id=identity.campaign_id(),
        name=campaign.name,
        created_at=now,
        submitted_at=now,
        level=campaign.level,
        baseline_delegate=campaign.baseline_delegate,
        reuse=reuse,
        manifest_sha256=campaign.manifest_sha256,
        content=content,
        model_names=[model.id for model in campaign.models],
        delegate_names=[delegate.name for delegate in campaign.delegates],
        labels=dict(campaign.labels),
    )
    session.add(row)
    session.flush()
    wanted = [cell for cell in planned if cell.action != "excluded"]
    _add_models(session, wanted, now)
    cells = [_cell(row, cell) for cell in wanted]
    session.add_all(cells)
    session.flush()
    for cell, plan in zip(cells, wanted, strict=True):
        if plan.reused is not None:
            reuse_result(session, cell, plan.reused.attempt_id, now)
        elif plan.spec.obstacle is not None:
            attempts.finish(session, cell, CellState.UNSUPPORTED, plan.spec.obstacle, now)
    session.flush()
    return row.campaign_id


def _add_models(session: Session, planned: Sequence[PlannedCell], now: datetime) -> None:
    sizes = {cell.spec.model_sha256: cell.spec.model_bytes for cell in planned}
    for sha256, size_bytes in sizes.items():
        if session.get(tables.Model, sha256) is None:
            session.add(tables.Model(sha256=sha256, size_bytes=size_bytes, added_at=now))
    session.flush()


def _cell(campaign: tables.Campaign, planned: PlannedCell) -> tables.Cell:
    spec = planned.spec
    return tables.Cell(
        cell_id=identity.cell_id(campaign.campaign_id, spec.key),
        campaign_no=_number(campaign),
        key=spec.key,
        series=spec.ingredients.series,
        position=spec.position,
        model=spec.model,
        model_sha256=spec.model_sha256,
        delegate=spec.delegate,
        delegate_kind=spec.delegate_kind,
        delegate_options=dict(spec.delegate_options),
        target=spec.target,
        level=spec.level,
        plan=spec.plan.model_dump(mode="json"),
        inputs={name: value.model_dump_json() for name, value in spec.inputs.items()},
        soft_limit_s=spec.soft_limit_s,
        expected_s=planned.eta_s,
        state=CellState.QUEUED.value,
    )


def reuse_result(session: Session, cell: tables.Cell, attempt_id: str, now: datetime) -> None:
    """Let a cell show the counted result of another one and end as that one did."""
    result = session.get_one(tables.Result, attempt_id)
    reason = Reason(code=ReasonCode(result.reason_code), text=result.reason_text)
    cell.shown_attempt_id = attempt_id
    cell.reused_from = result.cell_id
    attempts.finish(session, cell, CellState(result.status), reason, now, kind="reused")


def _number(campaign: tables.Campaign) -> int:
    if campaign.no is None:
        raise ValueError(f"campaign {campaign.campaign_id} is not stored yet")
    return campaign.no


def open_count(session: Session, campaign_no: int) -> int:
    """Cells that have not ended."""
    return session.exec(
        select(func.count())
        .select_from(tables.Cell)
        .where(tables.Cell.campaign_no == campaign_no, col(tables.Cell.state).in_(tables.OPEN_WORDS))
    ).one()


def total_count(session: Session, campaign_no: int) -> int:
    """All cells of a campaign."""
    return session.exec(
        select(func.count()).select_from(tables.Cell).where(tables.Cell.campaign_no == campaign_no)
    ).one()


def remaining_by_target(session: Session, campaign_no: int, now: datetime) -> Mapping[str, float]:
    """Seconds of work that the open cells of each target stand for, in the light of those that have ended."""
    rows = session.exec(
        select(tables.Cell.target, func.sum(tables.Cell.expected_s))
        .where(tables.Cell.campaign_no == campaign_no, col(tables.Cell.state).in_(tables.OPEN_WORDS))
        .group_by(tables.Cell.target)
    )
    factor = _pace(session, campaign_no)
    remaining = {target: factor * float(seconds) for target, seconds in rows}
    running = session.exec(
        select(tables.Attempt.device_id, tables.Attempt.started_at, tables.Cell.expected_s)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .where(tables.Cell.campaign_no == campaign_no, tables.Attempt.state == AttemptState.RUNNING.value)
    )
    for device_id, started_at, expected_s in running:
        if started_at is not None and device_id in remaining:
            spent_s = (now - started_at).total_seconds()
            remaining[device_id] -= min(max(spent_s, 0.0), factor * expected_s)
    return remaining


def _pace(session: Session, campaign_no: int) -> float:
    """Time taken over time expected, of the cells measured so far; 1 before the third."""
    count, taken_ns, expected_s = session.exec(
        select(func.count(), func.sum(tables.Result.duration_ns), func.sum(tables.Cell.expected_s))
        .select_from(tables.Result)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
        .where(
            tables.Cell.campaign_no == campaign_no, col(tables.Result.counted), tables.Result.status == "done"
        )
    ).one()
    if count < _PACE_FROM or not expected_s:
        return 1.0
    return float(taken_ns) / 1e9 / float(expected_s)


def park(session: Session, campaign_no: int, parked: bool) -> None:
    """Nobody (or somebody) waits for this campaign."""
    session.get_one(tables.Campaign, campaign_no, with_for_update=True).parked = parked


def park_others(session: Session, campaign_no: int) -> None:
    """Leave every other unfinished campaign alone; whoever waits for one takes it back within a moment."""
    for other in session.exec(
        select(tables.Campaign).where(
            col(tables.Campaign.no) != campaign_no, col(tables.Campaign.no).in_(_open_campaigns())
        )
    ):
        other.parked = True


def cancel_campaign(session: Session, campaign: tables.Campaign, now: datetime) -> int:
    """Ask every open cell of a campaign to end; returns how many there are."""
    campaign.cancel_asked_at = now
    cells = session.exec(
        select(tables.Cell).where(
            tables.Cell.campaign_no == campaign.no, col(tables.Cell.state).in_(tables.OPEN_WORDS)
        )
    )
    return cancel_cells(session, cells.all(), now)


def cancel_cells(session: Session, cells: Sequence[tables.Cell], now: datetime) -> int:
    """Waiting cells end at once, others are asked to; returns how many had not ended."""
    open_cells = [cell for cell in cells if cell.state in tables.OPEN_WORDS]
    for cell in open_cells:
        cell.cancel_asked_at = now
        if cell.state == CellState.QUEUED:
            attempts.finish(session, cell, CellState.CANCELLED, cancelled_reason(), now)
    return len(open_cells)


def drop_vanished(session: Session, device_ids: Sequence[str], hint: Mapping[str, str], now: datetime) -> int:
    """End the queued cells of unparked campaigns whose device is not there any more.

    `hint`: delegate kind -> why it is missing.
    """
    gone = session.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            ~col(tables.Campaign.parked),
            tables.Cell.state == CellState.QUEUED.value,
            col(tables.Cell.target).not_in([*device_ids, NO_DEVICE]),
        )
    ).all()
    for cell in gone:
        why = hint.get(cell.delegate_kind)
        text = f"device {cell.target} is not there any more" + (f": {why}" if why else "")
        reason = Reason(code=ReasonCode.NO_DEVICE, text=text)
        attempts.finish(session, cell, CellState.UNSUPPORTED, reason, now)
    return len(gone)
