"""Queries which agents have lost their credentials, for rooms that need no cryptography."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import Session, col, select

from orchestrator.db import tables


def revoked(session: Session, now: datetime) -> set[str]:
    """Removed agents that were enrolled and have no valid credential any more.

    Their keys and connections may be accepted for a moment yet, where another process has not noticed.
    """
    still = select(tables.Credential.agent_id).where(is_valid(now))
    name = col(tables.Agent.agent_id)
    enrolled_once = name.in_(select(tables.Credential.agent_id))
    removed = col(tables.Agent.state) == tables.AGENT_REMOVED
    return set(session.exec(select(name).where(removed, enrolled_once, name.not_in(still))))


def is_valid(now: datetime) -> ColumnElement[bool]:
    """The condition of a credential that is neither revoked nor expired after a replacement."""
    return and_(
        col(tables.Credential.revoked_at).is_(None),
        or_(col(tables.Credential.expires_at).is_(None), col(tables.Credential.expires_at) > now),
    )
