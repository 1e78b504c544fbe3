"""HTTP/1.1 of the endpoint: uvicorn's protocol, with a deadline for everything that the other end must do."""

import asyncio
import math
from enum import Enum
from typing import Any, Final

from starlette.types import Scope
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from orchestrator.endpoint.connections import Connection
from orchestrator.endpoint.listener import Listener

HEAD_LIMIT_BYTES: Final = 16 * 1024
"""Bytes of a request's line and headers together, at most. Chosen: ours have less than 1 KiB, those of a
browser behind a proxy a few.
"""

KEEP_ALIVE_S: Final = 30
"""Whole seconds (uvicorn's unit) that the connection of a token's owner may wait for its next request."""

_NEXT_REQUEST_S: Final = 40.0
"""Seconds from an answer to the end of the next head on such a connection: `KEEP_ALIVE_S`, and 10 to send it.
"""

STRANGER_S: Final = 10.0
"""Seconds that a connection without a valid token has for each of these: to send the body of an enrolment,
and to read its answer. Chosen: each fits into one packet or a few.
"""

UNREAD_S: Final = 60.0
"""Seconds that the owner of a token has to read something of an answer before its connection is closed.
Chosen: longer than a lossy link needs to recover; a transfer that was cut resumes where it stopped.
"""


class Stage(Enum):
    """The thing that a connection waits for, as words for a message."""

    HEAD = "the next head"
    BODY = "the body"
    ANSWER = "the farm's answer"
    UNREAD = "the other end, to read"


_STRANGERS: Final = dict.fromkeys(Stage, STRANGER_S) | {Stage.ANSWER: math.inf}
"""Seconds that each stage may take without a valid token. The answer is the farm's own work."""

_OWNERS: Final = {
    Stage.HEAD: _NEXT_REQUEST_S,
    Stage.BODY: math.inf,  # `Body` ends one that stalls, and one that waits for its turn is not at fault
    Stage.ANSWER: math.inf,
    Stage.UNREAD: UNREAD_S,
}
"""Seconds that each stage may take on the connection of a token's owner."""


class Protocol(H11Protocol):
    """One connection: it tells the table of connections what it waits for, and since when."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # uvicorn gives `app_state` to each request as `scope["state"]`, where `connection_of` finds this.
        super().__init__(config, server_state, app_state | {_CONNECTION: self}, _loop)
        self._listener = listener
        self._connection: Connection | None = None
        self._stage: tuple[Stage, object] = (Stage.HEAD, None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """TLS is agreed on: from here on the transport closes the connection, with whatever it holds back."""
        super().connection_made(transport)
        # asyncio wraps the accepted socket; only its descriptor still tells which one it is.
        descriptor = transport.get_extra_info("socket").fileno()
        connection = self._listener.by_descriptor[descriptor]
        if connection not in self._listener.connections:  # closed for another one in the meantime
            transport.abort()
            return
        connection.close = transport.abort
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        """Bytes of the other end; they prolong a deadline only where they end what it is for."""
        super().data_received(data)
        self._observe()

    def on_response_complete(self) -> None:
        """Set the next stage's deadline: the farm has answered, and the next head may be here already."""
        super().on_response_complete()
        self._observe()

    def pause_writing(self) -> None:
        """Set the deadline for an other end that does not read as fast as the farm writes."""
        super().pause_writing()
        self._observe()

    def resume_writing(self) -> None:
        """Set the deadline anew: the other end has read something."""
        super().resume_writing()
        self._observe()

    def _observe(self) -> None:
        """Set a new deadline where a new stage, or a stage of a new request, has begun."""
        now = (self._found(), self.cycle)
        if self._connection is None or now == self._stage:
            return
        self._stage = now
        self._set_deadline()

    def _found(self) -> Stage:
        if self.flow.write_paused:
            return Stage.UNREAD
        # Before the first request it is None, whatever its type says.
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            return Stage.HEAD
        return Stage.BODY if self.cycle.more_body else Stage.ANSWER

    def _set_deadline(self) -> None:
        assert self._connection is not None
        stage, _ = self._stage
        limits = _STRANGERS if self._connection.owner is None else _OWNERS
        self._connection.waits = stage is not Stage.ANSWER
        self._connection.deadline_s = self.loop.time() + limits[stage]

    @property
    def is_vouched_for(self) -> bool:
        """Whether a valid token was shown on this connection."""
        return self._connection is not None and self._connection.owner is not None

    def vouch(self, owner: str) -> None:
        """Note that a valid token of `owner` was shown on this connection."""
        if self._connection is not None:
            self._listener.connections.vouch(self._connection, owner)
            # The stage is the same as before, but an owner may take longer for it.
            self._set_deadline()


_CONNECTION: Final = "connection"


def connection_of(scope: Scope) -> Protocol:
    """Return the connection that a request came on."""
    found: Protocol = scope["state"][_CONNECTION]
    return found
