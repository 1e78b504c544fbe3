"""The listening socket of the endpoint, which counts every connection before TLS or any byte is awaited."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from orchestrator.endpoint.connections import Connection, Connections

BURST: Final = 16
"""Connections that are accepted before those that are open are read again. Chosen: one that sends its
request at once is answered before a flood of later ones can replace it; smaller only costs more turns of the
loop.
"""

FIRST_REQUEST_S: Final = 10.0
"""Seconds from the connection to the end of the head of its first request, TLS included. Chosen: a slow
machine on a bad network needs two; a larger one lets silent connections stay longer.
"""

_SWEEP_S: Final = 0.5
"""Seconds between two looks for connections that are over their deadline; they end so much later at most."""

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` after which asyncio stops accepting for a second and then goes on by itself."""

log = logging.getLogger(__name__)


class Listener(socket.socket):
    """A listening socket whose connections are counted in `connections`.

    The event loop accepts and reads in one thread; TLS begins after `accept`, out of sight of the protocol,
    so that only here a handshake that never ends can be seen and ended.
    """

    def __init__(self, made: socket.socket, connections: Connections) -> None:
        """Take the place of `made`, which is left without a descriptor."""
        super().__init__(made.family, made.type, made.proto, made.detach())
        self.setblocking(False)
        self.connections = connections
        self.by_descriptor: dict[int, Connection] = {}
        self._burst = 0
        self._sweeping = False

    def accept(self) -> tuple[socket.socket, object]:
        """Return the next connection. Raises `BlockingIOError` without one, and after each `BURST`."""
        # The error ends the accepting of this turn of the loop; the socket stays readable, so the next turn
        # goes on.
        if self._burst == BURST:
            self._burst = 0
            raise BlockingIOError
        loop = asyncio.get_running_loop()
        # Only now: a listener is made in the main thread, before its loop runs.
        if not self._sweeping:
            self._sweeping = True
            loop.set_exception_handler(_handle)
            self._sweep(loop)
        plain, address = super().accept()
        self._burst += 1
        # The lambda is first called when the connection ends, with both names bound.
        accepted = _Accepted(plain, lambda: self._gone(connection, descriptor))
        descriptor = accepted.fileno()
        connection = Connection(str(address[0]), accepted.cut, loop.time() + FIRST_REQUEST_S)
        self.by_descriptor[descriptor] = connection
        self.connections.add(connection)
        return accepted, address

    def _gone(self, connection: Connection, descriptor: int) -> None:
        self.connections.forget(connection)
        # A socket may be closed twice, and its number may be that of another connection by then.
        if self.by_descriptor.get(descriptor) is connection:
            del self.by_descriptor[descriptor]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.connections.expire(loop.time())
        if self.fileno() != -1:
            loop.call_later(_SWEEP_S, self._sweep, loop)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log in one line that no connection can be accepted for now; leave other errors to asyncio."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        log.error("no connection can be accepted for a second: %s", error.strerror)
    else:
        loop.default_exception_handler(context)


class _Accepted(socket.socket):
    """A connection that says when its descriptor is closed, by whomever."""

    def __init__(self, plain: socket.socket, gone: Callable[[], None]) -> None:
        super().__init__(plain.family, plain.type, plain.proto, plain.detach())
        self._gone = gone

    def cut(self) -> None:
        """End the connection, while TLS is being agreed on too; the event loop then closes the descriptor."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._gone()
        super().close()
