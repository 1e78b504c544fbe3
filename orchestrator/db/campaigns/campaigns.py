"""Adds campaigns with all their cells, finds them again, cancels and parks them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, insert
from sqlmodel import Session, col, select

from agent.wire.measurement import Refinement
from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.cells import waiting
from orchestrator.db.engine import identity
from orchestrator.db.engine.dialects import insert_missing, note_growth
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import candidate_queries
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.blocks import Refining
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import OPEN, CellState, cancelled_reason
from orchestrator.policy.preview import PlannedCell

_MANY = 500
"""From how many new cells on PostgreSQL's planner is asked to look at the table of cells. Chosen: fewer do
not change its plans; the look itself reads a sample of the table, which a submission of a few cells need not
wait for.
"""


def content_of(
    campaign: Campaign, planned: Sequence[PlannedCell], reuse: str, user: str | None = None
) -> str:
    """Digest of the whole request: an unfinished campaign with an equal digest is continued. `user` of the
    endpoint: nobody continues, and later cancels, what another one submitted.
    """
    return digest(
        ({} if user is None else {"user": user})
        | {
            "name": campaign.name,
            "manifest": campaign.manifest_sha256,
            "labels": dict(campaign.labels),
            "reuse": reuse,
            "cells": sorted(cell.spec.key for cell in planned if cell.action != "excluded"),
        }
    )


def find_unfinished(turn: Turn, content: str) -> tables.Campaign | None:
    """Return the newest campaign with this content that has an open cell and was not cancelled."""
    return turn.exec(
        select(tables.Campaign)
        .where(
            tables.Campaign.content == content,
            col(tables.Campaign.cancel_asked_at).is_(None),
            col(tables.Campaign.ended_at).is_(None),
        )
        .order_by(col(tables.Campaign.no).desc())
    ).first()


def resume(turn: Turn, campaign: tables.Campaign, now: datetime) -> None:
    """Continue a campaign that is submitted again. It is owed nothing for the time in between."""
    campaign.submitted_at = now
    campaign.parked = False
    rejoin(turn, campaign)
    waiting.restart_clocks(turn, campaign, now)


def rejoin(turn: Turn, campaign: tables.Campaign) -> None:
    """Let an interrupted campaign join the others with no smaller share than the least served of them, and
    its user with no smaller one than the least served of those who wait.
    """
    campaign.served_s = max(campaign.served_s, _least_served(turn, campaign.no))
    campaign.user_served_s = _share_of(turn, campaign.submitted_by, campaign.no, campaign.user_served_s)


def add(
    turn: Turn,
    campaign: Campaign,
    planned: Sequence[PlannedCell],
    content: str,
    reuse: str,
    now: datetime,
    submitted_by: str = "",
) -> str:
    """Store a campaign with its cells; excluded ones are not stored. Returns its id."""
    row = tables.Campaign(
        campaign_id=identity.campaign_id(),
        name=campaign.name,
        created_at=now,
        submitted_at=now,
        level=campaign.level,
        baseline_delegate=campaign.baseline_delegate,
        **_baseline(campaign),
        reuse=reuse,
        manifest_sha256=campaign.manifest_sha256,
        content=content,
        model_names=[model.id for model in campaign.models],
        delegate_names=[delegate.name for delegate in campaign.delegates],
        labels=dict(campaign.labels),
        priority=campaign.priority,
        served_s=_least_served(turn),
        submitted_by=submitted_by,
        user_served_s=_share_of(turn, submitted_by),
    )
    turn.add(row)
    # Gives the campaign its number, which its cells have to name.
    turn.flush()
    wanted = [cell for cell in planned if cell.action != "excluded"]
    _add_models(turn, wanted, now)
    pools = {cell.spec.line for cell in wanted if cell.spec.siblings is not None}
    insert_missing(turn, tables.Pool, [{"line": line} for line in sorted(pools)])
    queued = [_fields(row, cell) for cell in wanted if cell.action == "run"]
    if queued:
        # Without SQLAlchemy's unit of work: a campaign may have 100,000 cells, and no code reads these rows
        # here.
        turn.connection().execute(insert(candidate_queries.cell), queued)
    pairs = [(tables.Cell(**_fields(row, cell)), cell) for cell in wanted if cell.action != "run"]
    turn.add_all([cell for cell, _planned in pairs])
    turn.flush()
    ends = {"no_model": CellState.FAILED}
    stuck = [
        (cell, ends.get(planned.action, CellState.UNSUPPORTED), planned.spec.obstacle)
        for cell, planned in pairs
        if planned.spec.obstacle is not None
    ]
    cell_ends.finish_all(turn, stuck, now)
    taken_over = [_take_over(turn, c, p.reused.attempt_id) for c, p in pairs if p.reused is not None]
    cell_ends.finish_all(turn, taken_over, now, kind="reused")
    turn.flush()
    # In the same transaction: the scheduler's next queries must not be planned for tables of the old size.
    note_growth(turn, "campaign", "device", "pool", *(["cell"] if len(wanted) >= _MANY else []))
    return row.campaign_id


def _baseline(campaign: Campaign) -> dict[str, Any]:
    for delegate in campaign.delegates:
        if delegate.name == campaign.baseline_delegate:
            return {"baseline_kind": delegate.kind, "baseline_options": dict(delegate.options)}
    return {}


def _add_models(turn: Turn, planned: Sequence[PlannedCell], now: datetime) -> None:
    sizes = {cell.spec.model_sha256: cell.spec.model_bytes for cell in planned}
    rows = [{"sha256": name, "size_bytes": sizes[name], "added_at": now} for name in sorted(sizes)]
    insert_missing(turn, tables.Model, rows)


def _least_served(turn: Turn, campaign_no: int | None = None) -> float:
    """Return the device-seconds a campaign starts with: those of the campaign that has had the least.

    With fewer it would be owed everything that the others got before it came, and would run alone for as
    long.
    """
    others = select(func.min(tables.Campaign.served_s)).where(*_others_that_wait(campaign_no))
    return turn.exec(others).one() or 0.0


def _share_of(turn: Turn, user: str, campaign_no: int | None = None, before_s: float = 0.0) -> float:
    """Return the device-seconds a campaign's user starts with: those of the user's other campaigns, else, for
    the same reason, at least those of the user who has had the least.
    """
    share = col(tables.Campaign.user_served_s)
    waiting = _others_that_wait(campaign_no)
    own = turn.exec(select(func.max(share)).where(*waiting, tables.Campaign.submitted_by == user)).one()
    if own is not None:
        return float(own)
    least = turn.exec(select(func.min(share)).where(*waiting)).one()
    return max(before_s, least or 0.0)


def _others_that_wait(campaign_no: int | None) -> tuple[ColumnElement[bool], ...]:
    return (
        col(tables.Campaign.ended_at).is_(None),
        col(tables.Campaign.purpose) == tables.MEASURE,
        ~col(tables.Campaign.parked),
        col(tables.Campaign.paused_at).is_(None),
        # Numbers begin with 1: 0 leaves no campaign out.
        col(tables.Campaign.no) != (campaign_no or 0),
    )


def _fields(campaign: tables.Campaign, planned: PlannedCell) -> dict[str, Any]:
    """Return the columns of a waiting cell."""
    spec = planned.spec
    limit_s = spec.queue_limit_s
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
        # Of one campaign: another one may measure the same on the same devices again.
        "siblings": spec.siblings and digest({"campaign": campaign.campaign_id, "siblings": spec.siblings}),
        # Lower goes first.
        "rank": -campaign.priority,
        "level": spec.level,
        "plan": spec.plan.model_dump(mode="json"),
        "inputs": {name: value.model_dump_json() for name, value in spec.inputs.items()},
        "soft_limit_s": spec.soft_limit_s,
        "expected_s": planned.eta_s,
        "state": CellState.QUEUED.value,
        "retried_after": 0,
        "shown_attempt_id": None if planned.standing is None else planned.standing.attempt_id,
        "reused_from": None if planned.standing is None else planned.standing.cell_id,
        "refines": None if planned.continues is None else _continued(planned.continues, campaign),
        "reuse": spec.reuse,
        "retry": None if spec.retry is None else asdict(spec.retry),
        "queue_limit_s": limit_s,
        "queue_until": None if limit_s is None else campaign.submitted_at + timedelta(seconds=limit_s),
    }


def _continued(earlier: Refinement, campaign: tables.Campaign) -> dict[str, Any]:
    return Refining(earlier, None, -campaign.priority, continues=True).stored


def reuse_result(turn: Turn, cell: tables.Cell, attempt_id: str, now: datetime) -> None:
    """Let a cell show the counted result of another one and end as that one did."""
    cell_ends.finish_all(turn, [_take_over(turn, cell, attempt_id)], now, kind="reused")


def _take_over(turn: Turn, cell: tables.Cell, attempt_id: str) -> tuple[tables.Cell, CellState, Reason]:
    result = turn.get_one(tables.Result, attempt_id)
    cell_ends.withdraw(turn, cell)
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


def any_waits(session: Session) -> bool:
    """Whether there is an unfinished campaign that is neither parked nor paused."""
    return session.exec(select(tables.Campaign.no).where(*_others_that_wait(None))).first() is not None


def park(turn: Turn, campaign_no: int, parked: bool) -> None:
    """Park a campaign for which no process waits, or unpark it."""
    turn.get_one(tables.Campaign, campaign_no, with_for_update=True).parked = parked


def park_others(turn: Turn, campaign_no: int) -> None:
    """Park every other unfinished campaign; a process that waits for one soon unparks it."""
    for other in turn.exec(
        select(tables.Campaign).where(
            col(tables.Campaign.no) != campaign_no,
            col(tables.Campaign.ended_at).is_(None),
            tables.Campaign.purpose == tables.MEASURE,
        )
    ):
        other.parked = True


def cancel_campaign(turn: Turn, campaign: tables.Campaign, now: datetime) -> int:
    """Ask every open cell of a campaign to end; returns how many there are."""
    campaign.cancel_asked_at = now
    cells = turn.exec(select(tables.Cell).where(tables.Cell.campaign_no == campaign.no, tables.IS_OPEN))
    return cancel_cells(turn, cells.all(), now)


def cancel_cells(turn: Turn, cells: Sequence[tables.Cell], now: datetime) -> int:
    """End waiting cells at once and ask others to end; returns how many had not ended."""
    open_cells = [cell for cell in cells if cell.state in OPEN]
    for cell in open_cells:
        cell.cancel_asked_at = now
    waiting = [cell for cell in open_cells if cell.state == CellState.QUEUED]
    cell_ends.finish_all(turn, [(c, CellState.CANCELLED, cancelled_reason()) for c in waiting], now)
    return len(open_cells)
