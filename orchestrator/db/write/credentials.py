"""The credentials of agents in the database: what is valid, for whom, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, update
from sqlmodel import Session, col, select

from agent.wire.credentials import digest
from orchestrator.db import tables


@dataclass(frozen=True, slots=True)
class Known:
    """A valid credential. `newest_issued`: see `tables.Credential`."""

    key_id: str
    agent_id: str
    public_key: str
    password_sha256: str
    newest_issued: float


def valid(session: Session, now: datetime) -> list[Known]:
    """Every credential that is neither revoked nor replaced for good, by agent."""
    rows = session.exec(
        select(tables.Credential)
        .where(_is_valid(now))
        .order_by(col(tables.Credential.agent_id), col(tables.Credential.made_at))
    )
    return [
        Known(row.key_id, row.agent_id, row.public_key, row.password_sha256, row.newest_issued)
        for row in rows
    ]


def agent_of_bearer(session: Session, token: str, now: datetime) -> str | None:
    """The agent whose valid token this is. The look-up is by hash: how long it takes tells nothing."""
    return session.exec(
        select(tables.Credential.agent_id).where(
            tables.Credential.token_sha256 == digest(token), _is_valid(now)
        )
    ).first()


def has_valid(session: Session, agent_id: str, now: datetime) -> bool:
    """Whether an agent is enrolled."""
    query = select(tables.Credential.key_id).where(tables.Credential.agent_id == agent_id, _is_valid(now))
    return session.exec(query.limit(1)).first() is not None


def replace_all(session: Session, agent_id: str, ends_at: datetime) -> None:
    """Let an agent's present credentials end then, where they do not end before."""
    session.exec(
        update(tables.Credential)
        .where(
            col(tables.Credential.agent_id) == agent_id,
            col(tables.Credential.revoked_at).is_(None),
            or_(
                col(tables.Credential.expires_at).is_(None),
                col(tables.Credential.expires_at) > ends_at,
            ),
        )
        .values(expires_at=ends_at)
    )


def revoke_all(session: Session, agent_id: str, now: datetime) -> bool:
    """End an agent's credentials and one-time tokens now; False where it never had any."""
    held = session.exec(
        select(tables.Credential.key_id).where(tables.Credential.agent_id == agent_id).limit(1)
    ).first()
    invited = session.exec(
        select(tables.Invitation.token_sha256).where(tables.Invitation.agent_id == agent_id).limit(1)
    ).first()
    session.exec(
        update(tables.Credential)
        .where(col(tables.Credential.agent_id) == agent_id, col(tables.Credential.revoked_at).is_(None))
        .values(revoked_at=now)
    )
    close_invitations(session, agent_id, now)
    return held is not None or invited is not None


def close_invitations(session: Session, agent_id: str, now: datetime) -> None:
    """Let nobody use the one-time tokens that were made for an agent."""
    session.exec(
        update(tables.Invitation)
        .where(col(tables.Invitation.agent_id) == agent_id, col(tables.Invitation.used_at).is_(None))
        .values(used_at=now)
    )


def enrolled(session: Session) -> Sequence[str]:
    """Every agent that ever was, also those that are revoked now."""
    names = select(tables.Credential.agent_id).distinct().order_by(col(tables.Credential.agent_id))
    return session.exec(names).all()


def note_newest(session: Session, newest: Mapping[str, float]) -> None:
    """Remember the latest `issued` by key."""
    for key_id, issued in newest.items():
        session.exec(
            update(tables.Credential)
            .where(
                col(tables.Credential.key_id) == key_id,
                col(tables.Credential.newest_issued) < issued,
            )
            .values(newest_issued=issued)
        )


def _is_valid(now: datetime) -> ColumnElement[bool]:
    return and_(
        col(tables.Credential.revoked_at).is_(None),
        or_(col(tables.Credential.expires_at).is_(None), col(tables.Credential.expires_at) > now),
    )
