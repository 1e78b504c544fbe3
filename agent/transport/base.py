"""The interface of the links that carry the daemon's messages."""

from typing import Protocol

from agent.wire.bounded import Wire


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
