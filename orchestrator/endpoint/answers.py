"""The outermost layer of the application: the rules for every request and every answer.

It stands around Starlette, which would hand an error on to the server to be logged with its traceback, and
with the statement and the values that a database refused.
"""

import logging
import traceback
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.db.engine.sessions import RefusedError
from orchestrator.endpoint.protocol import connection_of

LONGEST_PATH: Final = 2000
"""Characters of a path, at most. Chosen: ours have some 80 and the name of a campaign; it bounds what is
compared with every name.
"""

_LONGEST_REASON: Final = 300
"""Characters of an error that are logged."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answers:
    """Wraps the application."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not connection_of(scope).is_vouched_for:
                # Who shows no token gets one answer a connection: neither idling nor pipelining pays.
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        why = fault_of(scope["path"])
        if why:
            await JSONResponse({"error": why}, 400)(scope, receive, answer)
            return
        try:
            await self.app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not reach the server's log
            log.error("%s %r failed: %s", scope["method"], scope["path"], brief(error))


def fault_of(path: str) -> str | None:
    """Why no route can have this path; None: one may."""
    if len(path) > LONGEST_PATH:
        return f"the path has {len(path)} characters; the limit is {LONGEST_PATH}"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        return "the path has control characters"
    return None


def brief(error: Exception) -> str:
    """Format an error in one line with its place in the code; a database's refusal without its values."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((one for one in reversed(frames) if "orchestrator" in Path(one.filename).parts), frames[-1])
    lines = [] if isinstance(error, RefusedError) else str(error).splitlines()[:1]
    return ": ".join([type(error).__name__, *lines])[:_LONGEST_REASON] + f" ({frame.filename}:{frame.lineno})"
