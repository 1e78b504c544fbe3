"""Ends cells that have waited for a device for as long as their campaign file lets them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, TextClause, update
from sqlmodel import Session, col, select

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.refining import Refining


def are_overdue(now: datetime) -> tuple[ColumnElement[bool] | TextClause, ...]:
    """Conditions of cells, joined with campaigns: of one that is paused or parked none waits for a device."""
    return (
        tables.IS_QUEUED,
        col(tables.Cell.queue_until) <= now,
        ~col(tables.Campaign.parked),
        col(tables.Campaign.paused_at).is_(None),
    )


def is_any_overdue(session: Session, now: datetime) -> bool:
    """Whether there is one; by the index of limits alone."""
    query = (
        select(tables.Cell.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(*are_overdue(now))
    )
    return session.exec(query.limit(1)).first() is not None


def start_clock(cell: tables.Cell, now: datetime) -> None:
    """Set the time at which a cell that begins to wait is given up."""
    limit_s = cell.queue_limit_s
    cell.queue_until = None if limit_s is None else now + timedelta(seconds=limit_s)
    ends_at = None if cell.refines is None else Refining.read(cell.refines).ends_at
    if ends_at is not None:
        cell.queue_until = min(ends_at, cell.queue_until or ends_at)


def restart_clocks(turn: Turn, campaign: tables.Campaign, now: datetime) -> None:
    """Let the cells of a campaign wait from now on: nothing of it could start in the time before."""
    limit = col(tables.Cell.queue_limit_s)
    of_campaign = (
        col(tables.Cell.campaign_no) == campaign.no,
        col(tables.Cell.state) == CellState.QUEUED.value,
    )
    # A file has few different limits; each is one statement, however many cells wait.
    for seconds in turn.exec(select(limit).where(*of_campaign, limit.is_not(None)).distinct()).all():
        until = now + timedelta(seconds=seconds or 0.0)
        turn.exec(update(tables.Cell).where(*of_campaign, limit == seconds).values(queue_until=until))


def end_overdue(turn: Turn, now: datetime) -> int:
    """End the cells that have waited too long, with the reason. Returns how many.

    They have failed; those to which blocks were to be added are as they were.
    """
    cells = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(*are_overdue(now))
    ).all()
    refined = [cell for cell in cells if cell.refines is not None]
    others = [cell for cell in cells if cell.refines is None]
    time_over = Reason(code=ReasonCode.CANCELLED, text="the time for more blocks is over")
    cell_ends.finish_all(turn, [(cell, CellState.CANCELLED, time_over) for cell in refined], now)
    cell_ends.finish_all(turn, [(cell, CellState.FAILED, _reason(cell)) for cell in others], now)
    return len(cells)


def _reason(cell: tables.Cell) -> Reason:
    waited = timedelta(seconds=round(cell.queue_limit_s or 0.0))
    return Reason(
        code=ReasonCode.QUEUE_LIMIT,
        text=f"no device of {cell.line} took it within {waited} (h:mm:ss), its limits.queue; `farm devices` "
        "says what they do; then farm retry, or a longer limit",
    )
