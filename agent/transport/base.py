"""What the daemon needs of whatever carries its words."""

from __future__ import annotations

from typing import Protocol

from agent.wire.messages import Wire


class TransportError(Exception):
    """The other side does not keep to the protocol."""


class Transport(Protocol):
    """Non-blocking. `fileno` is negative while there is no connection."""

    @property
    def has_backlog(self) -> bool:
        """True while something waits to be sent."""

    @property
    def pid(self) -> int | None:
        """The process that carries the words, where it is a child of this one."""

    def fileno(self) -> int:
        """For a selector."""

    def send(self, message: Wire) -> None:
        """Send or keep; what is lost on the way is said again by whoever needs an answer."""

    def flush(self) -> None:
        """Send as much as fits."""

    def receive(self) -> list[bytes] | None:
        """Whole lines that have arrived; None where nothing will ever come again. Raises `TransportError`."""

    def tend(self) -> bool:
        """Do what time asks for. True: the connection is new, whoever listens knows nothing of us yet."""

    def pause_s(self) -> float | None:
        """When `tend` has something to do; None: never."""

    def close(self, drain_s: float = 0.0) -> None:
        """End after trying for `drain_s` seconds to send what waits."""
