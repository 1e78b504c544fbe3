"""Queries and stores the credentials of agents: invitations, valid ones, replacements, revocations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import not_, or_, update
from sqlmodel import Session, col, select

from agent.wire.secret_digest import digest
from orchestrator.db import tables
from orchestrator.db.devices.agents import is_valid
from orchestrator.db.engine.turn import Turn

if TYPE_CHECKING:
    # A farm on one machine has no package for keys.
    from agent.wire.envelope import PublicKey


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
    """Find the agent with this valid token. The look-up is by hash, so its duration reveals nothing."""
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


@dataclass(frozen=True, slots=True)
class Invitation:
    """A one-time token that was just used. `overlap`: how long the agent's older credentials stay valid."""

    agent_id: str
    overlap: timedelta


def replace_all(turn: Turn, agent_id: str, ends_at: datetime) -> None:
    """Let an agent's present credentials expire at `ends_at`, unless they expire earlier."""
    turn.exec(
        update(tables.Credential)
        .where(
            col(tables.Credential.agent_id) == agent_id,
            col(tables.Credential.revoked_at).is_(None),
            or_(col(tables.Credential.expires_at).is_(None), col(tables.Credential.expires_at) > ends_at),
        )
        .values(expires_at=ends_at)
    )


def revoke_all(turn: Turn, agent_id: str, now: datetime) -> bool:
    """End an agent's credentials and one-time tokens now; False where it never had any."""
    held = turn.exec(
        select(tables.Credential.key_id).where(tables.Credential.agent_id == agent_id).limit(1)
    ).first()
    invited = turn.exec(
        select(tables.Invitation.token_sha256).where(tables.Invitation.agent_id == agent_id).limit(1)
    ).first()
    turn.exec(
        update(tables.Credential)
        .where(col(tables.Credential.agent_id) == agent_id, col(tables.Credential.revoked_at).is_(None))
        .values(revoked_at=now)
    )
    close_invitations(turn, agent_id, now)
    return held is not None or invited is not None


def close_invitations(turn: Turn, agent_id: str, now: datetime) -> None:
    """Invalidate the one-time tokens that were made for an agent."""
    turn.exec(
        update(tables.Invitation)
        .where(col(tables.Invitation.agent_id) == agent_id, col(tables.Invitation.used_at).is_(None))
        .values(used_at=now)
    )


def over(session: Session, now: datetime) -> set[str]:
    """Return the ids of revoked or replaced keys, of revoked users' tokens, and of used one-time tokens."""
    keys = select(tables.Credential.key_id).where(not_(is_valid(now)))
    tokens = select(tables.UserToken.token_sha256).where(col(tables.UserToken.revoked_at).is_not(None))
    used = select(tables.Invitation.token_sha256).where(col(tables.Invitation.used_at).is_not(None))
    return {*session.exec(keys), *session.exec(tokens), *session.exec(used)}


def owners(session: Session, now: datetime) -> dict[str, str]:
    """Return whose the keys and tokens are that are not over, by id."""
    keys = select(tables.Credential.key_id, tables.Credential.agent_id).where(is_valid(now))
    tokens = select(tables.UserToken.token_sha256, tables.UserToken.name).where(
        col(tables.UserToken.revoked_at).is_(None)
    )
    unused = select(tables.Invitation.token_sha256, tables.Invitation.agent_id).where(
        col(tables.Invitation.used_at).is_(None)
    )
    return {
        **{key_id: f"agent {name}" for key_id, name in session.exec(keys)},
        **{sha256: f"user {name}" for sha256, name in session.exec(tokens)},
        **{sha256: f"one-time token of agent {name}" for sha256, name in session.exec(unused)},
    }


def end(turn: Turn, ids: Collection[str], now: datetime) -> None:
    """Revoke the keys and tokens with these ids now."""
    # An id does not say which of the three tables it is of; in the other two it is not found.
    turn.exec(update(tables.Credential).where(col(tables.Credential.key_id).in_(ids)).values(revoked_at=now))
    tokens = update(tables.UserToken).where(col(tables.UserToken.token_sha256).in_(ids))
    turn.exec(tokens.values(revoked_at=now))
    invitations = update(tables.Invitation).where(col(tables.Invitation.token_sha256).in_(ids))
    turn.exec(invitations.values(used_at=now))


def note_newest(turn: Turn, newest: Mapping[str, float]) -> None:
    """Remember the latest `issued` by key."""
    # Only forward: an earlier time would let older envelopes pass after a restart.
    for key_id, issued in newest.items():
        turn.exec(
            update(tables.Credential)
            .where(col(tables.Credential.key_id) == key_id, col(tables.Credential.newest_issued) < issued)
            .values(newest_issued=issued)
        )


def add_invitation(
    turn: Turn, token: str, agent_id: str, now: datetime, *, valid: timedelta, overlap: timedelta
) -> None:
    """Store a one-time token's hash. `overlap`: how long the older credentials stay valid after its use."""
    turn.add(
        tables.Invitation(
            token_sha256=digest(token),
            agent_id=agent_id,
            made_at=now,
            expires_at=now + valid,
            overlap_s=overlap.total_seconds(),
        )
    )


def use_invitation(turn: Turn, token: str, now: datetime) -> Invitation | None:
    """Use up a one-time token; None for one that is not known, was used, or is too old."""
    # Locked: of two agents that present one token, the second finds it used.
    row = turn.get(tables.Invitation, digest(token), with_for_update=True)
    if row is None or row.used_at is not None or row.expires_at <= now:
        return None
    row.used_at = now
    return Invitation(row.agent_id, timedelta(seconds=row.overlap_s))


def add(
    turn: Turn, agent_id: str, key: PublicKey, token_sha256: str, password_sha256: str, now: datetime
) -> bool:
    """Store new credentials of an agent; False, and nothing is stored, for a key that is known already."""
    if turn.get(tables.Credential, key.key_id) is not None:
        return False
    turn.add(
        tables.Credential(
            key_id=key.key_id,
            agent_id=agent_id,
            public_key=key.text,
            token_sha256=token_sha256,
            password_sha256=password_sha256,
            made_at=now,
        )
    )
    return True
