"""The listening socket of the endpoint, which counts every connection before TLS or any byte is awaited."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

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
        """Return the next connection. Raises `BlockingIOError` without one, and after every `BURST` of
        them.
        """
        if self._burst == BURST:
            self._burst = 0
            raise BlockingIOError
        plain, address = super().accept()
        self._burst += 1
        loop = asyncio.get_running_loop()
        if not self._sweeping:
            self._sweeping = True
            self._sweep(loop)
        accepted = _Accepted(plain, lambda: self._gone(connection, descriptor))
        descriptor = accepted.fileno()
        connection = Connection(str(address[0]), accepted.cut, loop.time() + FIRST_REQUEST_S)
        self.by_descriptor[descriptor] = connection
        self.connections.add(connection)
        return accepted, address

    def _gone(self, connection: Connection, descriptor: int) -> None:
        self.connections.forget(connection)
        if self.by_descriptor.get(descriptor) is connection:
            del self.by_descriptor[descriptor]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.connections.expire(loop.time())
        if self.fileno() != -1:
            loop.call_later(_SWEEP_S, self._sweep, loop)


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
