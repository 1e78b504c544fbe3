"""The optional runs in the background of a compiled partition, and their ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from runtime.delegates.base import Array
from runtime.delegates.storage import Storage


class Completion(Protocol):
    """The end of a run, or of anything else that a run may wait for."""

    @property
    def opencl_event(self) -> Any | None:
        """The `pyopencl.Event` that stands for it on a device; None where the host alone knows of it."""

    def is_signaled(self) -> bool:
        """Return True once it has ended, with or without an error."""

    def wait(self, timeout_ms: int = -1) -> None:
        """Return when it has ended; -1 waits for ever. Raises its error, or TimeoutError."""

    def on_signal(self, callback: Callable[[], None]) -> None:
        """Call once, from any thread, when it has ended; at once where it has."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was started, and why memory of the caller's is copied for it, one line for each."""

    completion: Completion
    copies: tuple[str, ...] = ()


@runtime_checkable
class AsynchronousPartition(Protocol):
    """A compiled partition that can run in the background, on memory of the caller's."""

    @property
    def starts(self) -> bool:
        """False where this one cannot: `invoke` is the only way to run it."""

    @property
    def waits(self) -> bool:
        """False where the caller asked that runs return when they are started."""

    def start(
        self,
        inputs: Sequence[Storage],
        outputs: Sequence[Storage],
        after: Sequence[Completion] = (),
        behind: Sequence[Completion] = (),
    ) -> StartedRun:
        """Start a run and return without waiting for anything; runs follow one another.

        The run begins when all of `after` and `behind` have ended, and uses the storages until it has ended
        itself. Its completion raises the error of the first of `after` that failed, whose results it needed,
        or its own.

        Raises `DelegateError` for a storage or an event that cannot be used: nothing is started then.
        """


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Why a model cannot run in the background. A value, not an exception: a result shows it."""

    reason: str


class RunSlot(Protocol):
    """Memory for one run at a time of a whole model."""

    def start(self, values: Sequence[Array]) -> None:
        """Copy the model's inputs in, start a run and return."""

    def finish(self) -> tuple[Array, ...]:
        """Wait for the run and return the model's outputs, in host memory. Raises the run's error."""


@runtime_checkable
class BoundSlot(RunSlot, Protocol):
    """A slot whose memory the run works on where it can: what an application fills and reads in place."""

    def run_again(self) -> None:
        """Run on the inputs that lie there, leave the outputs there, and wait. Raises the run's error."""


@runtime_checkable
class AsynchronousModel(Protocol):
    """A loaded model that also runs in the background, beside the methods of `LoadedModel`."""

    def run_slots(self, count: int) -> Sequence[RunSlot] | NotStarted:
        """Memory for so many runs in flight, until the model is resized or closed; or why there are none."""
