"""Enrols an agent, which sends a one-time token, a public key and hashes of its secrets."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from agent.wire.envelope import PublicKey, check_proof
from orchestrator.config.address import Address
from orchestrator.db import tables
from orchestrator.db.devices import agents, credentials
from orchestrator.db.engine.sessions import Session
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UsageError

VALID: Final = timedelta(hours=1)
"""How long a one-time token can be used. Chosen: long enough to log in at another machine."""

_NOT_INVITED: Final = (
    "this one-time token is not of this farm, or was used, replaced, or is too old; "
    "make a new one on the server: farm lab agents enrol NAME (or: farm lab agents rotate NAME)"
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SECRET_BYTES: Final = 32
"""Random bytes of a one-time token: 256 bits cannot be guessed, so the number of tries needs no limit."""


@dataclass(frozen=True, slots=True)
class Request:
    """An agent's request to be enrolled; its only secret is the one-time token."""

    token: str
    public_key: PublicKey
    token_sha256: str
    password_sha256: str

    @classmethod
    def read(cls, asked: Mapping[str, object]) -> "Request":
        """Read it from JSON fields. Raises `UsageError`, whose text repeats none of the input."""
        names = ("token", "public_key", "token_sha256", "password_sha256", "proof")
        fields = {name: value for name in names if isinstance(value := asked.get(name), str)}
        if len(fields) != len(names) or set(asked) != set(names):
            raise UsageError(f"an enrolment has exactly these texts: {', '.join(names)}")
        if not _SHA256.fullmatch(fields["token_sha256"]) or not _SHA256.fullmatch(fields["password_sha256"]):
            raise UsageError("token_sha256 and password_sha256 are hashes of 64 hex digits")
        try:
            key = PublicKey.read(fields["public_key"])
            check_proof(key, fields["token"], fields["proof"])
        except ValueError as error:
            raise UsageError(f"the enrolment does not prove its key: {error}") from error
        return cls(fields["token"], key, fields["token_sha256"], fields["password_sha256"])


def check_name(agent_id: str) -> None:
    """Check an agent's name, which is part of device ids and of keys at the broker. Raises `UsageError`."""
    if not _NAME.fullmatch(agent_id):
        raise UsageError(
            f"{agent_id!r} cannot be an agent's name: at most 63 letters, digits, - and _, no - or _ first"
        )


def invite(
    turn: Turn,
    agent_id: str,
    farm_key_id: str,
    now: datetime,
    *,
    valid: timedelta = VALID,
    overlap: timedelta | None = None,
) -> str:
    """Return a new one-time token SECRET.KEYID; the agent's earlier ones become void.

    `overlap`: how long the present credentials of an enrolled agent stay valid after the token was used;
    None: the agent must not be enrolled. Raises `UsageError`.
    """
    check_name(agent_id)
    there = credentials.has_valid(turn, agent_id, now)
    if there and overlap is None:
        raise UsageError(
            f"agent {agent_id} is enrolled; new secrets for it: farm lab agents rotate {agent_id}; "
            f"to shut it out: farm lab agents revoke {agent_id}"
        )
    if not there and overlap is not None:
        known = ", ".join(credentials.enrolled(turn)) or "none"
        raise UsageError(f"agent {agent_id} is not enrolled; once enrolled: {known}")
    credentials.close_invitations(turn, agent_id, now)
    token = f"{secrets.token_urlsafe(_SECRET_BYTES)}.{farm_key_id}"
    credentials.add_invitation(turn, token, agent_id, now, valid=valid, overlap=overlap or timedelta())
    return token


def require_invited(session: Session, request: Request, now: datetime) -> None:
    """Refuse a one-time token that cannot be used. Raises `UsageError`.

    Asked before `enrol`, which waits for the write lock of the database: strangers must not make others wait.
    """
    if not credentials.is_invited(session, request.token, now):
        raise UsageError(_NOT_INVITED)


def enrol(turn: Turn, request: Request, now: datetime) -> str:
    """Use a one-time token; return the agent's name. A removed agent is active again. Raises `UsageError`."""
    invitation = credentials.use_invitation(turn, request.token, now)
    if invitation is None:
        raise UsageError(_NOT_INVITED)
    name, key = invitation.agent_id, request.public_key
    credentials.replace_all(turn, name, now + invitation.overlap)
    if not credentials.add(turn, name, key, request.token_sha256, request.password_sha256, now):
        raise UsageError("this key is known already; an enrolment makes a new one")
    # A rotation, which alone has an overlap, only renews secrets: an agent that drains keeps draining.
    if name in agents.leaving(turn) and not invitation.overlap:
        agents.set_state(turn, name, tables.AGENT_ACTIVE)
    return name


def granted(
    agent_id: str, farm_key: PublicKey, address: Address | None, broker: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the answer to an enrolment. `address`: of the farm's endpoint; `broker`: what it needs there."""
    return {
        "agent_id": agent_id,
        "farm_key": farm_key.text,
        "endpoint": None if address is None else address.url,
        "endpoint_ca": None if address is None else address.authority_text(),
        **broker,
    }
