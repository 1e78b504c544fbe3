"""Counts open cells by state."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.policy.lifecycle import OPEN, CellState


def counts(session: Session, suspect_before: datetime) -> dict[str, int]:
    """Number of open cells by state; `suspect`: of attempts without a message since `suspect_before`;
    `paused`: of queued cells whose campaign is paused.
    """
    rows = session.exec(
        select(tables.Cell.state, func.count()).where(tables.IS_OPEN).group_by(col(tables.Cell.state))
    )
    found = {state.value: 0 for state in CellState if state in OPEN} | dict(rows.all())
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    silent = select(func.count()).select_from(tables.Attempt).where(tables.IS_LIVE, last < suspect_before)
    paused = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, col(tables.Campaign.paused_at).is_not(None))
    )
    return found | {"suspect": session.exec(silent).one(), "paused": session.exec(paused).one()}


def waiting_of(session: Session, user: str) -> int:
    """Number of queued cells of one submitter."""
    query = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, tables.Campaign.submitted_by == user)
    )
    return session.exec(query).one()
