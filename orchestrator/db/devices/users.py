"""Queries and stores the users' tokens, by hash, and their revocation."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select

from agent.wire.secret_digest import digest
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn


@dataclass(frozen=True, slots=True)
class UserToken:
    """A user's token without the token itself."""

    name: str
    scopes: tuple[str, ...]
    made_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


def token_of(session: Session, name: str, token: str) -> UserToken | None:
    """Return the record of this user's token, valid or not; None if the user has no such token.

    Rows are looked up by name, which is no secret, and hashes compared in a time that tells nothing.
    """
    given = digest(token).encode()
    found = None
    # To the end: the time must not tell which of a user's tokens fits.
    for row in session.exec(select(tables.UserToken).where(tables.UserToken.name == name)):
        if hmac.compare_digest(row.token_sha256.encode(), given):
            found = _shown(row)
    return found


def listed(session: Session) -> Sequence[UserToken]:
    """Every token that was ever made, by user, the newest last."""
    rows = session.exec(
        select(tables.UserToken).order_by(col(tables.UserToken.name), col(tables.UserToken.made_at))
    )
    return [_shown(row) for row in rows]


def _shown(row: tables.UserToken) -> UserToken:
    return UserToken(row.name, tuple(row.scopes), row.made_at, row.expires_at, row.revoked_at)


def add(
    turn: Turn, name: str, token: str, scopes: Sequence[str], now: datetime, expires_at: datetime | None
) -> None:
    """Store the hash of a user's new token."""
    turn.add(
        tables.UserToken(
            token_sha256=digest(token), name=name, scopes=list(scopes), made_at=now, expires_at=expires_at
        )
    )


def revoke(turn: Turn, name: str, now: datetime) -> None:
    """End the tokens of a user now."""
    turn.exec(
        update(tables.UserToken)
        .where(col(tables.UserToken.name) == name, col(tables.UserToken.revoked_at).is_(None))
        .values(revoked_at=now)
    )
