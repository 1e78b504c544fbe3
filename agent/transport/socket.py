"""The links that carry the daemon's messages: their interface, and newline-delimited JSON over an inherited
socket (the embedded agent).
"""

import contextlib
import socket
from typing import Final, Protocol

from agent.wire.bounded import Wire
from agent.wire.messages import MAX_MESSAGE_BYTES, AgentAlive, Heartbeat, encode


class TransportError(Exception):
    """The other side violates the protocol."""


class Transport(Protocol):
    """A link; no method blocks. `fileno` is negative while there is no connection."""

    @property
    def has_backlog(self) -> bool:
        """True while something waits to be sent."""

    @property
    def pid(self) -> int | None:
        """Id of the process that carries the messages, where it is a child of this one."""

    def fileno(self) -> int:
        """Return the descriptor for a selector."""

    def send(self, message: Wire) -> None:
        """Send a message, or queue it. The daemon repeats a lost message that needs an answer."""

    def flush(self) -> None:
        """Send as much of the queue as fits."""

    def receive(self) -> list[bytes] | None:
        """Return whole lines that have arrived; None where no more will come. Raises `TransportError`."""

    def tend(self) -> bool:
        """Do what is due. Returns True where the connection is new: its other side knows nothing yet."""

    def pause_s(self) -> float | None:
        """Seconds until `tend` has something to do; None: never."""

    def close(self, drain_s: float = 0.0) -> None:
        """Close the link after trying for `drain_s` seconds to send the queue."""


_READ_BYTES: Final = 1 << 16
"""Bytes read at once. Any size works: lines are joined across reads."""
_HEARTBEAT_BACKLOG_BYTES: Final = 1 << 16
"""Bytes in the queue above which heartbeats are dropped: the other side has stopped reading, and only the
newest heartbeat matters. Smaller could drop one behind a large result; larger only holds memory."""


class SocketLink:
    """A link that does not block: what cannot be sent at once is queued, and the daemon's loop flushes it."""

    def __init__(self, descriptor: int) -> None:
        """Take over a connected stream socket."""
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._incoming = b""
        self._outgoing = bytearray()
        self._new = True

    @property
    def pid(self) -> int | None:
        """Always None: the other side is not a child of this process."""
        return None

    def tend(self) -> bool:
        """Return True once, at the beginning."""
        new, self._new = self._new, False
        return new

    def pause_s(self) -> float | None:
        """Return None: a socket needs no tending."""
        return None

    def fileno(self) -> int:
        """Return the descriptor for a selector."""
        return self._socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """True while something waits to be sent."""
        return bool(self._outgoing)

    def close(self, drain_s: float = 0.0) -> None:
        """Close the socket after trying for `drain_s` seconds to send the queue."""
        with contextlib.suppress(OSError):
            # With 0 seconds the socket does not wait: what fits at once is sent.
            self._socket.settimeout(drain_s)
            self._socket.sendall(self._outgoing)
        self._socket.close()

    def end_writing(self, drain_s: float) -> None:
        """Shut down the sending side, once the queue is sent or `drain_s` seconds are over."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(drain_s)
            self._socket.sendall(self._outgoing)
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, message: Wire) -> None:
        """Send a message, or queue it. A heartbeat is dropped where the other side has stopped reading."""
        if isinstance(message, Heartbeat | AgentAlive) and len(self._outgoing) > _HEARTBEAT_BACKLOG_BYTES:
            return
        self._outgoing += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send as much of the queue as fits. `receive` notices a closed connection."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                sent = self._socket.send(self._outgoing)
                del self._outgoing[:sent]

    def receive(self) -> list[bytes] | None:
        """Return whole lines that have arrived; None at the end of the stream. Raises `TransportError`."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        # The other side ended with bytes unread: that is the end of the stream, too.
        except ConnectionResetError:
            return None
        if not data:
            return None
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        if len(self._incoming) > MAX_MESSAGE_BYTES:
            raise TransportError(f"a line of more than {MAX_MESSAGE_BYTES} bytes")
        return [line for line in lines if line.strip()]
