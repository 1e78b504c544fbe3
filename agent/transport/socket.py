"""Newline-delimited JSON over an inherited socket (the embedded agent)."""

from __future__ import annotations

import contextlib
import socket

from agent.transport.base import TransportError
from agent.wire.messages import MAX_MESSAGE_BYTES, AgentAlive, Heartbeat, Wire, encode

_READ_BYTES = 1 << 16
_HEARTBEAT_BACKLOG_BYTES = 1 << 16


class SocketLink:
    """Non-blocking: what cannot be sent at once waits in memory; the daemon's loop flushes it."""

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
        """None: the other side is not ours to care for."""
        return None

    def tend(self) -> bool:
        """True once, at the beginning."""
        new, self._new = self._new, False
        return new

    def pause_s(self) -> float | None:
        """None: a socket needs no care."""
        return None

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    @property
    def has_backlog(self) -> bool:
        """True while something waits to be sent."""
        return bool(self._outgoing)

    def close(self, drain_s: float = 0.0) -> None:
        """Close the socket after trying for `drain_s` seconds to send what waits."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(drain_s)
            self._socket.sendall(self._outgoing)
        self._socket.close()

    def end_writing(self, drain_s: float) -> None:
        """Say that nothing more will come, once what waits is sent or `drain_s` seconds are over."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(drain_s)
            self._socket.sendall(self._outgoing)
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, message: Wire) -> None:
        """Send or keep. A sign of life is dropped where the other side has stopped reading."""
        if isinstance(message, Heartbeat | AgentAlive) and len(self._outgoing) > _HEARTBEAT_BACKLOG_BYTES:
            return
        self._outgoing += encode(message)
        self.flush()

    def flush(self) -> None:
        """Send as much as fits. A closed connection is noticed by `receive`."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                sent = self._socket.send(self._outgoing)
                del self._outgoing[:sent]

    def receive(self) -> list[bytes] | None:
        """Whole lines that have arrived; None at the end of the stream. Raises `TransportError`."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            return None
        if not data:
            return None
        *lines, self._incoming = (self._incoming + data).split(b"\n")
        if len(self._incoming) > MAX_MESSAGE_BYTES:
            raise TransportError(f"a line of more than {MAX_MESSAGE_BYTES} bytes")
        return [line for line in lines if line.strip()]
