"""Queries the agents' credentials: which are valid, and to which agent each belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from agent.wire.secret_digest import digest
from orchestrator.db import tables
from orchestrator.db.read.revocations import is_valid


@dataclass(frozen=True, slots=True)
class Known:
    """A valid credential. `newest_issued`: see `tables.Credential`."""

    key_id: str
    agent_id: str
    public_key: str
    password_sha256: str
    newest_issued: float


def valid(session: Session, now: datetime) -> list[Known]:
    """Every credential that is neither revoked nor expired after a replacement, by agent."""
    rows = session.exec(
        select(tables.Credential)
        .where(is_valid(now))
        .order_by(col(tables.Credential.agent_id), col(tables.Credential.made_at))
    )
    return [
        Known(row.key_id, row.agent_id, row.public_key, row.password_sha256, row.newest_issued)
        for row in rows
    ]


def agent_of_bearer(session: Session, token: str, now: datetime) -> str | None:
    """The agent with this valid token. The look-up is by hash, so its duration reveals nothing."""
    return session.exec(
        select(tables.Credential.agent_id).where(
            tables.Credential.token_sha256 == digest(token), is_valid(now)
        )
    ).first()


def is_invited(session: Session, token: str, now: datetime) -> bool:
    """Whether a one-time token can be used."""
    query = select(tables.Invitation.agent_id).where(
        tables.Invitation.token_sha256 == digest(token),
        col(tables.Invitation.used_at).is_(None),
        tables.Invitation.expires_at > now,
    )
    return session.exec(query).first() is not None


def has_valid(session: Session, agent_id: str, now: datetime) -> bool:
    """Whether an agent is enrolled."""
    query = select(tables.Credential.key_id).where(tables.Credential.agent_id == agent_id, is_valid(now))
    return session.exec(query.limit(1)).first() is not None


def enrolled(session: Session) -> Sequence[str]:
    """Every agent that was ever enrolled, including revoked ones."""
    names = select(tables.Credential.agent_id).distinct().order_by(col(tables.Credential.agent_id))
    return session.exec(names).all()
