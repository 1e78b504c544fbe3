"""Makes, lists and ends the tokens with which users work from machines without the database's password.

A token is NAME.SECRET, or NAME.SECRET.AUTHORITY where the lab's own CA signed the endpoint's certificate:
AUTHORITY begins the sha256 of that CA, so that a user's machine can fetch it and know that it is the right
one. The database has the token's sha256 alone.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.db.devices import users
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UsageError
from orchestrator.policy.rights import USUAL, Scope, User, check_user_name

AUTHORITY_DIGITS: Final = 32
"""Hexadecimal digits of the CA's sha256 in a token: 128 bits, for which nobody finds a second certificate.
More only lengthen the line that a user copies.
"""

_SECRET_BYTES: Final = 32
"""Random bytes of a token: 256 bits cannot be guessed, so a plain sha256 of it may be stored: salt and slow
hashes protect secrets that people choose.
"""


@dataclass(frozen=True, slots=True)
class Users:
    """The users of a lab. Any thread may use it."""

    database: Database

    def add(
        self,
        name: str,
        scopes: Sequence[Scope] = USUAL,
        *,
        valid: timedelta | None = None,
        address: Address | None = None,
        replace: bool = False,
    ) -> str:
        """Return a new token, which is stored nowhere. `valid`: for so long; None: until it is revoked.

        `replace`: the user's present token ends. Raises `UsageError`, also where the user has a token and it
        is not to be replaced.
        """
        check_user_name(name)
        now = utc_now()
        parts = [name, secrets.token_urlsafe(_SECRET_BYTES)]
        authority = None if address is None else address.authority_text()
        if authority is not None:
            parts.append(authority_id(authority))
        token = ".".join(parts)
        with self.database.write() as turn:
            if not replace:
                _require_none(turn, name, now)
            # Also a token that has expired, which `_require_none` lets pass: a user has one at most.
            users.revoke(turn, name, now)
            users.add(turn, name, token, scopes, now, None if valid is None else now + valid)
        return token

    def revoke(self, name: str) -> None:
        """End a user's token. Raises `UsageError` where there never was one."""
        with self.database.write() as turn:
            known = {entry.name for entry in users.listed(turn)}
            if name not in known:
                raise UsageError(f"no user {name!r}; known: {', '.join(sorted(known)) or 'none'}")
            users.revoke(turn, name, utc_now())

    def listed(self) -> Sequence[users.UserToken]:
        """Every user's newest token, by name."""
        with self.database.read() as session:
            found = users.listed(session)
        # The newest token of a name comes last, and takes the place of the others.
        return list({entry.name: entry for entry in found}.values())

    def with_token(self, token: str) -> User | None:
        """Return the user of a token; None if nobody had it. Raises `UsageError` for an old one."""
        name, _, secret = token.partition(".")
        if not secret:
            return None
        with self.database.read() as session:
            known = users.token_of(session, name, token)
        if known is None:
            return None
        if known.is_valid(utc_now()):
            return User(known.name, frozenset(map(Scope, known.scopes)))
        over = "was revoked" if known.revoked_at is not None else f"expired at {known.expires_at:%F %R} UTC"
        raise UsageError(
            f"the token of user {name} {over}; the administrator makes a new one on the server: "
            f"farm lab users add {name}"
        )


def authority_id(authority: str) -> str:
    """Return the digits that name a CA (PEM text) at the end of a token."""
    return hashlib.sha256(authority.encode()).hexdigest()[:AUTHORITY_DIGITS]


def _require_none(turn: Turn, name: str, now: datetime) -> None:
    if any(entry.name == name and entry.is_valid(now) for entry in users.listed(turn)):
        raise UsageError(
            f"user {name} has a token; to make another, which ends that one: "
            f"farm lab users add {name} --replace"
        )
