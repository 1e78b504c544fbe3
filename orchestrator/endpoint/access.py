"""Authorises requests: agents by the token of their enrolment, users by their own, others by the farm's."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from orchestrator.endpoint.protocol import connection_of
from orchestrator.errors import UsageError
from orchestrator.policy.rights import Scope, User

LONGEST_TOKEN: Final = 512
"""The most characters of a token that is checked. Chosen: far above every token that the farm makes or
requires, and short enough that hashing what a stranger sends costs nothing.
"""

MOST_CHECKS: Final = 8
"""Tokens that are looked up at a time; further ones wait. Chosen: a look-up is one short query, and invented
tokens must not take the threads and the connections to the database that admitted requests use.
"""

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Trust(Protocol):
    """The farm's knowledge of its agents and users. The methods block and may be called by any thread."""

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        """Return the credentials of a new agent. Raises `UsageError` if the request is refused."""

    def agent_of(self, bearer: str) -> str | None:
        """Name of the agent that has this token; None: no agent has it, or it was revoked."""

    def may_fetch(self, agent_id: str, sha256: str) -> bool:
        """Whether an attempt of this agent that is under way uses this artifact."""

    def user_of(self, bearer: str) -> User | None:
        """Return the user of this token; None if nobody had it. Raises `UsageError` for an old one."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Admits or refuses requests."""

    trust: Trust
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
        if await self._is_user(request, Scope.READ):
            return
        if self.read_token is None:
            raise HTTPException(
                403, "results are closed to readers; set FARM_READ_TOKEN for `farm lab serve`"
            )
        _compare(request, self.read_token, "read token")
        connection_of(request.scope).vouch("the read token")

    async def submitter(self, request: Request) -> str:
        """Admit a sender of models and return its name, that of a user or of all who have the submit token.

        Raises `HTTPException` 401; 403 where the farm has no submit token.
        """
        user = await self._user(request)
        if user is not None:
            _vouched(request, user, Scope.SUBMIT)
            return f"user {user.name}"
        if self.submit_token is None:
            raise HTTPException(403, "uploads are closed; set FARM_SUBMIT_TOKEN for `farm lab serve`")
        _compare(request, self.submit_token, "submit token")
        connection_of(request.scope).vouch("the submit token")
        return "the submit token"

    async def _is_user(self, request: Request, scope: Scope) -> bool:
        """Whether a user sent the request. Raises `HTTPException` 401 or 403 for one who may not do this."""
        user = await self._user(request)
        if user is not None:
            _vouched(request, user, scope)
        return user is not None

    async def _user(self, request: Request) -> User | None:
        token = _bearer(request)
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
    if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
        raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN", _CHALLENGE)
    return token


def _compare(request: Request, expected: str, what: str) -> None:
    # Digests have one length, so the duration of the comparison reveals nothing about the token.
    if not hmac.compare_digest(_digest(_bearer(request)), _digest(expected)):
        raise HTTPException(401, f"this is not the {what} of the farm", _CHALLENGE)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
