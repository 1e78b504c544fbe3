"""Serves users' machines: `POST /farm/VERSION/CALL` asks the farm's own face, in JSON, with their tokens."""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.config.address import Address
from orchestrator.endpoint.access import Gate
from orchestrator.endpoint.body import whole
from orchestrator.endpoint.user_client import VERSION
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.policy.rights import Scope, User

LARGEST_CALL_BYTES: Final = 4 << 20
"""Bytes of a call's arguments, at most: a campaign file has up to 1 MiB, the names of its files add less. A
smaller limit would refuse a file that the server's own command line takes.
"""

log = logging.getLogger(__name__)


class Face(Protocol):
    """The calls that users may make. The methods block, and any thread may call them."""

    def scope_of(self, call: str) -> Scope | None:
        """Return the scope that a call needs; None if there is no such call."""

    def answer(self, user: User, call: str, arguments: bytes) -> bytes:
        """Make a call for a user; JSON in, JSON out. Raises `FarmError`."""


@dataclass(frozen=True, slots=True)
class UserCalls:
    """The handlers of `/farm/{version}/{call}` and `/authority`."""

    gate: Gate
    face: Face | None
    address: Address

    async def call(self, request: Request) -> Response:
        """`POST /farm/{version}/{call}`."""
        call = request.path_params["call"]
        scope = None if self.face is None else self.face.scope_of(call)
        # A stranger gets to know no more than that a token is needed.
        user = await self.gate.user(request, scope or Scope.READ)
        if request.path_params["version"] != str(VERSION) or self.face is None or scope is None:
            raise HTTPException(
                404,
                f"this farm has no call {call} of version {VERSION}: install its version of delegate-farm",
            )
        arguments = await whole(request, LARGEST_CALL_BYTES)
        try:
            answer = await run_in_threadpool(self.face.answer, user, call, arguments)
        except FarmError as error:
            return JSONResponse({"error": str(error), "exit_code": error.exit_code}, _status(error))
        # Reads would fill the log: whoever watches a campaign asks every second.
        if scope is not Scope.READ:
            log.info("user %s: %s", user.name, call)
        return Response(answer, media_type="application/json", headers={"cache-control": "no-store"})

    async def authority(self, _: Request) -> Response:
        """`GET /authority`: the lab's own CA, which a user's token names by its hash; it is no secret."""
        return JSONResponse({"authority": await run_in_threadpool(self.address.authority_text)})


def _status(error: FarmError) -> int:
    if isinstance(error, UsageError):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return HTTPStatus.SERVICE_UNAVAILABLE if isinstance(error, UnreachableError) else HTTPStatus.CONFLICT
