"""Campaigns: adding one with all its cells, finding it again, cancelling, parking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, text
from sqlmodel import Session, col, select

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.engine.session import insert_missing, note_growth
from orchestrator.db.queue import candidate_queries, picking
from orchestrator.db.write import attempts, identity
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import AttemptState, CellState, cancelled_reason
from orchestrator.policy.matrix import NO_DEVICE
from orchestrator.policy.preview import PlannedCell
from orchestrator.policy.selectors import is_class

_PACE_FROM = 3
_MANY = 500
"""So many new cells change what the planner should know of their table."""


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
            col(tables.Campaign.ended_at).is_(None),
        )
        .order_by(col(tables.Campaign.no).desc())
    ).first()


def resume(session: Session, campaign: tables.Campaign, now: datetime) -> None:
    """Somebody submits the campaign again and waits for it; what it was not given meanwhile is not owed."""
    campaign.submitted_at = now
    campaign.parked = False
    rejoin(session, campaign)


def rejoin(session: Session, campaign: tables.Campaign) -> None:
    """A campaign that stood aside joins the others again."""
    campaign.served_s = max(campaign.served_s, _least_served(session, campaign.no))


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
        priority=campaign.priority,
        served_s=_least_served(session),
    )
    session.add(row)
    session.flush()
    wanted = [cell for cell in planned if cell.action != "excluded"]
    _add_models(session, wanted, now)
    _add_pools(session, {cell.spec.line for cell in wanted if cell.spec.siblings is not None})
    queued = [_fields(row, cell) for cell in wanted if cell.action == "run"]
    if queued:
        session.connection().execute(insert(candidate_queries.cell), queued)
    pairs = [(tables.Cell(**_fields(row, cell)), cell) for cell in wanted if cell.action != "run"]
    session.add_all([cell for cell, _planned in pairs])
    session.flush()
    stuck = [(c, CellState.UNSUPPORTED, p.spec.obstacle) for c, p in pairs if p.spec.obstacle is not None]
    attempts.finish_all(session, stuck, now)
    taken_over = [_take_over(session, c, p.reused.attempt_id) for c, p in pairs if p.reused is not None]
    attempts.finish_all(session, taken_over, now, kind="reused")
    session.flush()
    note_growth(session, "campaign", "device", "pool", *(["cell"] if len(wanted) >= _MANY else []))
    return row.campaign_id


def _add_models(session: Session, planned: Sequence[PlannedCell], now: datetime) -> None:
    sizes = {cell.spec.model_sha256: cell.spec.model_bytes for cell in planned}
    rows = [{"sha256": name, "size_bytes": sizes[name], "added_at": now} for name in sorted(sizes)]
    insert_missing(session, tables.Model, rows)


def _add_pools(session: Session, lines: Iterable[str]) -> None:
    insert_missing(session, tables.Pool, [{"line": line} for line in sorted(lines)])


def _least_served(session: Session, campaign_no: int | None = None) -> float:
    """Where a campaign joins the others: level with the one that was given least, not ahead of it."""
    others = select(func.min(tables.Campaign.served_s)).where(
        col(tables.Campaign.ended_at).is_(None),
        tables.Campaign.purpose == tables.MEASURE,
        ~col(tables.Campaign.parked),
        col(tables.Campaign.paused_at).is_(None),
        col(tables.Campaign.no) != (campaign_no or 0),
    )
    return session.exec(others).one() or 0.0


def _fields(campaign: tables.Campaign, planned: PlannedCell) -> dict[str, Any]:
    """The columns of a cell that waits."""
    spec = planned.spec
    return {
        "cell_id": identity.cell_id(campaign.campaign_id, spec.key),
        "campaign_no": _number(campaign),
        "key": spec.key,
        "series": spec.ingredients.series,
        "position": spec.position,
        "model": spec.model,
        "model_sha256": spec.model_sha256,
        "delegate": spec.delegate,
        "delegate_kind": spec.delegate_kind,
        "delegate_options": dict(spec.delegate_options),
        "target": spec.target,
        "line": spec.line,
        "siblings": spec.siblings,
        "rank": -campaign.priority,
        "level": spec.level,
        "plan": spec.plan.model_dump(mode="json"),
        "inputs": {name: value.model_dump_json() for name, value in spec.inputs.items()},
        "soft_limit_s": spec.soft_limit_s,
        "expected_s": planned.eta_s,
        "state": CellState.QUEUED.value,
        "retried_after": 0,
    }


def reuse_result(session: Session, cell: tables.Cell, attempt_id: str, now: datetime) -> None:
    """Let a cell show the counted result of another one and end as that one did."""
    attempts.finish_all(session, [_take_over(session, cell, attempt_id)], now, kind="reused")


def _take_over(session: Session, cell: tables.Cell, attempt_id: str) -> tuple[tables.Cell, CellState, Reason]:
    result = session.get_one(tables.Result, attempt_id)
    cell.shown_attempt_id = attempt_id
    cell.reused_from = result.cell_id
    cell.device_id = result.device_id
    return (
        cell,
        CellState(result.status),
        Reason(code=ReasonCode(result.reason_code), text=result.reason_text),
    )


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
            col(tables.Campaign.no) != campaign_no,
            col(tables.Campaign.ended_at).is_(None),
            tables.Campaign.purpose == tables.MEASURE,
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
    waiting = [cell for cell in open_cells if cell.state == CellState.QUEUED]
    attempts.finish_all(session, [(c, CellState.CANCELLED, cancelled_reason()) for c in waiting], now)
    return len(open_cells)


def drop_vanished(session: Session, device_ids: Sequence[str], hint: Mapping[str, str], now: datetime) -> int:
    """End the queued cells of unparked campaigns that none of these devices, all there are, could take.

    `hint`: delegate kind -> why it is missing.
    """
    present = session.exec(select(tables.Device).where(col(tables.Device.device_id).in_(device_ids))).all()
    served = {line for device in present for line in picking.lines_of(session, device)}
    gone = session.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            ~col(tables.Campaign.parked),
            text("cell.state = 'queued'"),
            col(tables.Cell.line).not_in([*served, NO_DEVICE]),
        )
    ).all()
    attempts.finish_all(session, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in gone], now)
    return len(gone)


def strand_classes(session: Session, why: str, now: datetime) -> int:
    """End the queued cells of classes of which no present device of a willing agent is left."""
    willing = session.exec(
        select(tables.Device)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(col(tables.Device.present), tables.Agent.state == tables.AGENT_ACTIVE)
    ).all()
    served = {line for device in willing for line in picking.lines_of(session, device)}
    known = session.exec(select(tables.Pool.line)).all()
    lost = [line for line in known if line not in served]
    queued = select(tables.Cell).where(text("cell.state = 'queued'"), col(tables.Cell.line).in_(lost))
    cells = session.exec(queued).all() if lost else []
    hint = {cell.delegate_kind: why for cell in cells}
    attempts.finish_all(session, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in cells], now)
    return len(cells)


def _gone(cell: tables.Cell, hint: Mapping[str, str]) -> Reason:
    why = hint.get(cell.delegate_kind)
    what = f"device {cell.target} is not there any more"
    if is_class(cell.line):
        what = f"no device of the class {cell.target.rpartition('#')[0]} is there any more"
    return Reason(code=ReasonCode.NO_DEVICE, text=what + (f": {why}" if why else ""))
