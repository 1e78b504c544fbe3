"""Who may ask for what: agents with the token of their enrolment, others with the farm's own tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

LONGEST_TOKEN: Final = 512

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Trust(Protocol):
    """What the farm knows of its agents. The methods block and may be called by any thread."""

    def enrol(self, asked: Mapping[str, object]) -> Mapping[str, object]:
        """The credentials of a new agent. Raises `UsageError` where the request is not to be granted."""

    def agent_of(self, bearer: str) -> str | None:
        """Name of the agent whose token this is; None: nobody's, or one that was revoked."""

    def may_fetch(self, agent_id: str, sha256: str) -> bool:
        """Whether an attempt of this agent that is under way uses this artifact."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in."""

    trust: Trust
    read_token: str | None = field(default=None, repr=False)
    submit_token: str | None = field(default=None, repr=False)

    async def agent(self, request: Request) -> str:
        """The agent that asks. Raises `HTTPException` 401."""
        name = await run_in_threadpool(self.trust.agent_of, _bearer(request))
        if name is None:
            raise HTTPException(401, "this token is no agent's, or it was revoked; enrol again", _CHALLENGE)
        return name

    async def fetcher(self, request: Request, sha256: str) -> None:
        """Let an agent have what it works on. Raises `HTTPException` 401 or 403."""
        name = await self.agent(request)
        if not await run_in_threadpool(self.trust.may_fetch, name, sha256):
            raise HTTPException(403, f"no attempt of agent {name} that is under way uses {sha256[:12]}")

    async def reader(self, request: Request) -> None:
        """Let a reader in. Raises `HTTPException` 401, or 403 where the farm has no read token."""
        if self.read_token is None:
            raise HTTPException(403, "results are not open to readers; set FARM_READ_TOKEN for `farm serve`")
        _compare(request, self.read_token, "read token")

    async def submitter(self, request: Request) -> None:
        """Let in who brings models. Raises `HTTPException` 401, or 403 where the farm has no submit token."""
        if self.submit_token is None:
            raise HTTPException(403, "models are taken from nobody; set FARM_SUBMIT_TOKEN for `farm serve`")
        _compare(request, self.submit_token, "submit token")


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
        raise HTTPException(401, "say who asks: Authorization: Bearer TOKEN", _CHALLENGE)
    return token


def _compare(request: Request, expected: str, what: str) -> None:
    if not hmac.compare_digest(_digest(_bearer(request)), _digest(expected)):
        raise HTTPException(401, f"this is not the {what} of the farm", _CHALLENGE)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
