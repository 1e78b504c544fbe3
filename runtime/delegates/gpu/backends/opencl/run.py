"""The ends of runs as OpenCL events, for which later runs wait on the device, and callers on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from threading import Lock
from time import monotonic, sleep

from runtime.delegates.asynchrony import Completion
from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.faults import code_of, device_error, refuse_lost
from runtime.errors import DelegateError, DeviceError

_POLL_SECONDS = 0.0002
"""Pause between two looks at an event by a caller who waits for a limited time: OpenCL has no such wait.
Smaller wakes the processor more often, larger returns later behind the event."""

_FAILED = -14
"""The status of a command about which the driver answers with an error that has no number: OpenCL's of a
failed event that was waited for (cl.h), behind which a lost device may stand."""


class OpenClEvent:
    """An OpenCL event as the end of whatever its command does.

    Errors name it by `what`; `needs` says in one about memory how much is needed.
    """

    def __init__(self, event: cl.Event, what: str = "waiting for a run", needs: str = "") -> None:
        self._event = event
        # Kept: a driver that has lost its device need not tell it any more.
        self._context: cl.Context = event.context  # type: ignore[attr-defined]  # not in its stubs
        self._what = what
        self._needs = needs
        self.waits_actively = False
        # Kept: an end is final, and a driver that has lost its device since would answer with an error.
        self._ended: int | None = None
        self._was_waited_for = False

    @property
    def opencl_event(self) -> cl.Event:
        """The event itself."""
        return self._event

    def is_signaled(self) -> bool:
        """Return True once the command has ended, with or without an error."""
        return self._status()[0] <= 0

    def _status(self) -> tuple[int, str]:
        """OpenCL's status of the command, which counts down to 0 or is that of an error, and its words.

        A driver that cannot be asked is an error too: a lost device ends whatever runs there.
        """
        if self._ended is None:
            try:
                status = int(self._event.command_execution_status)
            except cl.Error as error:
                return code_of(error) or _FAILED, str(error)
            if status > 0:
                return status, "the command has not ended"
            self._ended = status
        return self._ended, f"the command ended with OpenCL's status {self._ended}"

    def wait(self, timeout_ms: int = -1) -> None:
        """Return when the command has ended. Raises as `faults.device_errors`, or TimeoutError."""
        status, _ = self._status()
        if status > 0:
            # Behind a loss the driver may never signal it.
            refuse_lost(self._context.devices[0])
        if status >= 0 and timeout_ms < 0:
            self._wait()
        end = inf if timeout_ms < 0 else monotonic() + timeout_ms / 1000
        while not self.is_signaled():
            if monotonic() >= end:
                raise TimeoutError(f"the event was not signalled within {timeout_ms} ms")
            sleep(_POLL_SECONDS)
        status, text = self._status()
        if status < 0:
            raise device_error(status, text, self._what, self._context, self._needs)

    def _wait(self) -> None:
        """Return when the command has ended; of one that failed, its own status says how."""
        # Once, also for a command that has ended: its results are the host's only behind a wait.
        if self._was_waited_for:
            return
        if self.waits_actively:
            self.ask()
        try:
            self._event.wait()
        except cl.Error as error:
            if self._status()[0] >= 0:
                what, context, needs = self._what, self._context, self._needs
                raise device_error(code_of(error), str(error), what, context, needs) from error
        self._was_waited_for = True

    def ask(self) -> None:
        """Return when the command has ended, having asked all the time."""
        while not self.is_signaled():
            pass

    def on_signal(self, callback: Callable[[], None]) -> None:
        """Call once, from a thread of the driver's, when the command has ended."""
        # Called after an error as well, whose status counts as past COMPLETE (clSetEventCallback).
        self._event.set_callback(cl.command_execution_status.COMPLETE, lambda _: callback())


class CallersEvent(OpenClEvent):
    """An event that a caller made. Raises `DelegateError` for anything but a `pyopencl.Event`."""

    def __init__(self, event: object) -> None:
        if not isinstance(event, cl.Event):
            raise DelegateError(f"an event of OpenCL is a pyopencl.Event, not {type(event).__name__}")
        super().__init__(event, "waiting for a caller's event")


class OpenClRun(OpenClEvent):
    """A run that was enqueued. Keeps what it uses until somebody sees that it has ended.

    `after` are the ends that it waited for, whose errors are its own; `check` gives the run's own error.
    """

    def __init__(
        self,
        event: cl.Event,
        after: Sequence[Completion],
        check: Callable[[], BaseException | None],
        used: object,
        *,
        what: str = "waiting for a run",
        needs: str = "",
    ) -> None:
        super().__init__(event, what, needs)
        self._after = tuple(after)
        self._check: Callable[[], BaseException | None] | None = check
        self._used: object = used
        self._error: BaseException | None = None
        self._lock = Lock()

    def wait(self, timeout_ms: int = -1) -> None:
        """Wait as `OpenClEvent.wait`; raises the run's error."""
        if self._error is not None:
            raise self._error
        try:
            super().wait(timeout_ms)
        except DeviceError as error:
            if not self.is_signaled():
                # Lost before its end, which may never come: there is nothing to find out.
                raise
            self._error = error
        self.settle()
        if self._error is not None:
            raise self._error

    def settle(self) -> None:
        """Find out how a run went that has ended, and let go of what it used."""
        with self._lock:
            if self._check is None:
                return
            # The next start and a waiting thread may both see
            # the end first; the lock lets only one of them ask.
            own = self._check()
            # The earliest cause counts: what the run waited for, then the device, then its own check.
            self._error = _failure(self._after) or self._error or own
            # Runs that follow one another would else keep each other for ever.
            self._check, self._after, self._used = None, (), None


def _failure(ended: Sequence[Completion]) -> BaseException | None:
    """Return the first error among them."""
    for completion in ended:
        try:
            completion.wait()
        except Exception as error:  # noqa: BLE001  # whatever it was, the run had nothing to work on
            return error
    return None


def events_of(after: Sequence[Completion], context: cl.Context) -> list[cl.Event]:
    """Events of a context for which a queue waits on the device.

    Ends that the host knows of, and runs in other contexts, become events of the context that are set when
    they come. Raises `DelegateError` for an event of the caller's in another context.
    """
    found: list[cl.Event] = []
    for completion in after:
        event = completion.opencl_event
        is_own = event is not None and event.context == context
        # Before its status is checked: otherwise a wrong context would be refused or not by chance of timing.
        if isinstance(completion, CallersEvent) and not is_own:
            raise DelegateError(
                "gpu delegate: the event belongs to another OpenCL context; make it in the model's own "
                "(`opencl_context`), or wait for it before the run"
            )
        if completion.is_signaled():
            continue
        if event is not None and is_own:
            found.append(event)
        else:
            found.append(gate := cl.UserEvent(context))
            # Also after an error: commands behind a failed event would fail in ways that differ by driver.
            completion.on_signal(partial(gate.set_status, cl.command_execution_status.COMPLETE))
    return found
