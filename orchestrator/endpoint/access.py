"""Authorises requests: agents by the token of their enrolment, users by their own, others by the farm's."""

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from agent.wire.credentials import farm_of
from agent.wire.envelope import PublicKey
from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import references
from orchestrator.endpoint.protocol import connection_of
from orchestrator.errors import UsageError
from orchestrator.policy.rights import Scope, User
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import FarmKeys
from orchestrator.trust.users import Users

LONGEST_TOKEN: Final = 512
"""The most characters of a token that is checked. Chosen: far above every token that the farm makes or
requires, and short enough that hashing what a stranger sends costs nothing.
"""

MOST_CHECKS: Final = 8
"""Tokens that are looked up at a time; further ones wait. Chosen: a look-up is one short query, and invented
tokens must not take the threads and the connections to the database that admitted requests use.
"""

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Gate:
    """Admits or refuses requests."""

    trust: "AgentRegistry"
    read_token: str | None = field(default=None, repr=False)
    submit_token: str | None = field(default=None, repr=False)
    checks: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MOST_CHECKS))

    async def agent(self, request: Request) -> str:
        """Return the agent that sent the request. Raises `HTTPException` 401."""
        token = _bearer(request)
        name = await to_thread.run_sync(self.trust.agent_of, token, limiter=self.checks)
        if name is None:
            raise HTTPException(401, "no agent has this token, or it was revoked; enrol again", _CHALLENGE)
        connection_of(request.scope).vouch(f"agent {name}")
        return name

    async def fetcher(self, request: Request, sha256: str) -> None:
        """Let an agent fetch what its attempts use. Raises `HTTPException` 401 or 403."""
        name = await self.agent(request)
        if not await run_in_threadpool(self.trust.may_fetch, name, sha256):
            raise HTTPException(403, f"no running attempt of agent {name} uses {sha256[:12]}")

    async def user(self, request: Request, scope: Scope) -> User:
        """Return the user of the request, if the token has this scope. Raises `HTTPException` 401, 403."""
        found = await self._user(request)
        if found is None:
            raise HTTPException(401, "no user has this token; see FARM_TOKEN", _CHALLENGE)
        return _vouched(request, found, scope)

    async def reader(self, request: Request) -> None:
        """Admit a reader. Raises `HTTPException` 401, or 403 where the farm has no read token."""
        closed = "results are closed to readers; set FARM_READ_TOKEN for `farm lab serve`"
        await self._holder(request, Scope.READ, self.read_token, "read token", closed)

    async def submitter(self, request: Request) -> str:
        """Admit a sender of models and return its name, that of a user or of all who have the submit token.

        Raises `HTTPException` 401; 403 where the farm has no submit token.
        """
        closed = "uploads are closed; set FARM_SUBMIT_TOKEN for `farm lab serve`"
        return await self._holder(request, Scope.SUBMIT, self.submit_token, "submit token", closed)

    async def _holder(
        self, request: Request, scope: Scope, expected: str | None, what: str, closed: str
    ) -> str:
        """Return the name of the sender: a user with this scope, or whoever has the farm's token for it.

        Raises `HTTPException` 401, or 403 for a user without the scope, and as `closed` says without a token.
        """
        user = await self._user(request)
        if user is not None:
            return f"user {_vouched(request, user, scope).name}"
        if expected is None:
            raise HTTPException(403, closed)
        _compare(request, expected, what)
        connection_of(request.scope).vouch(f"the {what}")
        return f"the {what}"

    async def _user(self, request: Request) -> User | None:
        token = _bearer(request)
        # A user's token is NAME.SECRET; any other one costs no query here.
        if "." not in token:
            return None
        try:
            return await to_thread.run_sync(self.trust.user_of, token, limiter=self.checks)
        except UsageError as error:
            raise HTTPException(401, str(error), _CHALLENGE) from error


def _vouched(request: Request, user: User, scope: Scope) -> User:
    try:
        user.require(scope)
    except UsageError as error:
        raise HTTPException(403, str(error)) from error
    connection_of(request.scope).vouch(f"user {user.name}")
    return user


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    # The case of a scheme does not matter (RFC 9110, 11.1).
    if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
        raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN", _CHALLENGE)
    return token


def _compare(request: Request, expected: str, what: str) -> None:
    # Digests have one length, so the duration of the comparison reveals nothing about the token.
    if not hmac.compare_digest(_digest(_bearer(request)), _digest(expected)):
        raise HTTPException(401, f"this is not the {what} of the farm", _CHALLENGE)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """Enrols agents and checks their tokens; any thread may call it.

    `farm_keys`: the farm's valid keys. `admit`: makes an agent's new credentials valid at the broker,
    and returns the broker's part of the answer (`broker_url`, `broker_user`, `key_prefix`, `broker_ca`).
    """

    database: Database
    address: Address
    farm_keys: Callable[[], FarmKeys]
    admit: Callable[[str], Mapping[str, str | None]]

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Use a one-time token. Raises `UsageError`."""
        request = enrolment.Request.read(asked)
        with self.database.read() as session:
            # Before the write lock is waited for, which a stranger must not hold.
            enrolment.require_invited(session, request, utc_now())
        with self.database.write() as turn:
            agent_id = enrolment.enrol(turn, request, utc_now())
            # Within the transaction: where this raises, the one-time token stays unused.
            key = self._named_by(request.token)
        log.info("agent %s is enrolled with key %s", agent_id, request.public_key.key_id)
        return enrolment.granted(agent_id, key, self.address, self.admit(agent_id))

    def _named_by(self, token: str) -> PublicKey:
        """Return the farm's key that a one-time token names: the agent accepts no other."""
        key = self.farm_keys().named(farm_of(token))
        if key is None:
            raise UsageError(
                "this one-time token names a key that the farm has replaced; make a new one on the server: "
                "farm lab agents enrol NAME"
            )
        return key

    def agent_of(self, bearer: str) -> str | None:
        """Return the agent with this valid token."""
        with self.database.read() as session:
            return credentials.agent_of_bearer(session, bearer, utc_now())

    def may_fetch(self, agent_id: str, sha256: str) -> bool:
        """Whether an attempt of this agent that is under way uses this artifact."""
        with self.database.read() as session:
            return running_attempts.uses(session, agent_id, sha256) or references.is_of_live_attempt(
                session, agent_id, sha256
            )

    def user_of(self, bearer: str) -> User | None:
        """Return the user with this token. Raises `UsageError` for one that is over."""
        return Users(self.database).with_token(bearer)
