"""The event of an asynchronous run: signalled when the run is done."""

from __future__ import annotations

import threading


class Event:
    """Signalled once, with or without an error, by a run or by hand."""

    def __init__(self) -> None:
        self._signaled = threading.Event()
        self._error: BaseException | None = None

    def wait(self, timeout_ms: int = -1) -> None:
        """Return when signalled; -1 waits for ever.

        Raises TimeoutError after `timeout_ms`, and the run's own error where it failed.
        """
        if not self._signaled.wait(None if timeout_ms < 0 else timeout_ms / 1000):
            raise TimeoutError(f"the event was not signalled within {timeout_ms} ms")
        if self._error is not None:
            raise self._error

    def is_signaled(self) -> bool:
        """True once the run has ended, with or without an error."""
        return self._signaled.is_set()

    def signal(self, error: BaseException | None = None) -> None:
        """Wake all that wait; only the first call counts, so a late one cannot hide the run's error."""
        if not self._signaled.is_set():
            self._error = error
            self._signaled.set()
