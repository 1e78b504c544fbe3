"""Queries cells that have waited for a device longer than their campaign file allows."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, TextClause
from sqlmodel import Session, col, select

from orchestrator.db import tables


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
