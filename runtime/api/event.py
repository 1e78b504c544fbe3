"""The event of an asynchronous run: signalled when the run is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.delegates.asynchrony import Completion


class Event:
    """Signalled once, with or without an error: by hand, by a run, or by a command of OpenCL.

    A run on a device waits for it there where it stands for an OpenCL event (`opencl_event`), and is started
    by the signal otherwise; the caller's thread never waits.
    """

    def __init__(self, completion: Completion | None = None, copies: tuple[str, ...] = ()) -> None:
        self._completion = completion
        self.copies = copies
        """Why memory of the caller's was copied for the run, one line for each; empty where none was."""
        if completion is not None:
            return
        self._signaled = threading.Event()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @classmethod
    def create_from_opencl_event(cls, event: object) -> Event:
        """Create an event of a command that the caller has enqueued, a `pyopencl.Event`.

        Raises RuntimeError for anything else.
        """
        from runtime.delegates.gpu.backends.opencl.run import CallersEvent  # noqa: PLC0415  # on demand

        return cls(CallersEvent(event))

    @property
    def completion(self) -> Completion:
        """The object that a delegate waits for."""
        return self if self._completion is None else self._completion

    @property
    def opencl_event(self) -> Any | None:
        """The `pyopencl.Event` of the run, for commands of the caller's that shall wait for it on the device.

        None where the host alone knows of the end: `on_signal` may then set a `pyopencl.UserEvent`. It tells
        nothing of the run's error, which `wait` raises.
        """
        return None if self._completion is None else self._completion.opencl_event

    def wait(self, timeout_ms: int = -1) -> None:
        """Return when signalled; -1 waits for ever.

        Raises TimeoutError after `timeout_ms`, and the run's own error where it failed.
        """
        if self._completion is not None:
            self._completion.wait(timeout_ms)
            return
        if not self._signaled.wait(None if timeout_ms < 0 else timeout_ms / 1000):
            raise TimeoutError(f"the event was not signalled within {timeout_ms} ms")
        if self._error is not None:
            raise self._error

    def wait_in_any_case(self) -> None:
        """Return when signalled, whether or not the run failed."""
        with suppress(Exception):
            self.wait()

    def is_signaled(self) -> bool:
        """Return True once the run has ended, with or without an error."""
        return self._signaled.is_set() if self._completion is None else self._completion.is_signaled()

    def signal(self, error: BaseException | None = None) -> None:
        """Wake all that wait; only the first call counts, so a late one cannot hide the run's error.

        Raises RuntimeError for the event of a device, which the device signals.
        """
        if self._completion is not None:
            raise RuntimeError("the device signals this event; make one with Event() to signal it by hand")
        with self._lock:
            if self._signaled.is_set():
                return
            self._error = error
            self._signaled.set()
            callbacks, self._callbacks = self._callbacks, []
        # Outside of the lock: a callback may ask this very event.
        for callback in callbacks:
            callback()

    def on_signal(self, callback: Callable[[], None]) -> None:
        """Call once when signalled, from the thread that does it; at once where that has happened."""
        if self._completion is not None:
            self._completion.on_signal(callback)
            return
        with self._lock:
            if not self._signaled.is_set():
                self._callbacks.append(callback)
                return
        callback()
