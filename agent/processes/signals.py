"""Signals of a process that waits in one selector: they wake it, and a handler only takes note."""

import contextlib
import signal
import socket
from types import TracebackType
from typing import Final

_READ_BYTES: Final = 4096
"""Wake-up bytes read at once, one per signal; bytes that are left only wake the loop once more."""


class WakingSignals:
    """A context in which SIGCHLD and SIGTERM make `fileno` readable, and SIGINT is ignored.

    SIGINT belongs to the parent: Ctrl-C in a terminal reaches the whole process group, and the parent ends
    this process in its own order. Only one such context can exist in a process.
    """

    def __init__(self) -> None:
        """Create the socket pair; no handler is installed yet."""
        self.terminated = False
        self._reader, self._writer = socket.socketpair()
        # `set_wakeup_fd` accepts no descriptor that could block, and `clear` must not wait on an empty one.
        for end in (self._reader, self._writer):
            end.setblocking(False)

    def __enter__(self) -> "WakingSignals":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Without a handler, even one that does nothing, SIGCHLD would not write to the wake-up descriptor.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(self._writer.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First: no signal may write to a descriptor that is closed, or another file's by then.
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Return the descriptor that a selector waits for."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Read the wake-up bytes, so that the next wait sleeps again."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(_READ_BYTES)

    def _on_term(self, *_signal: object) -> None:
        self.terminated = True
