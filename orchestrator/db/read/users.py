"""Queries the users' tokens: whose is one, and which are there."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from agent.wire.secret_digest import digest
from orchestrator.db import tables


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
    """What is known of a token of this user, valid or not; None: it is none of theirs.

    Rows are looked up by name, which is no secret, and hashes compared in a time that tells nothing.
    """
    given = digest(token).encode()
    found = None
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
