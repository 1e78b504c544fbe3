"""Stores the users' tokens, by hash, and their revocation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import col

from agent.wire.secret_digest import digest
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn


def add(
    turn: Turn, name: str, token: str, scopes: Sequence[str], now: datetime, expires_at: datetime | None
) -> None:
    """Store the hash of a user's new token."""
    turn.add(
        tables.UserToken(
            token_sha256=digest(token),
            name=name,
            scopes=list(scopes),
            made_at=now,
            expires_at=expires_at,
        )
    )


def revoke(turn: Turn, name: str, now: datetime) -> None:
    """End the tokens of a user now."""
    turn.exec(
        update(tables.UserToken)
        .where(col(tables.UserToken.name) == name, col(tables.UserToken.revoked_at).is_(None))
        .values(revoked_at=now)
    )
