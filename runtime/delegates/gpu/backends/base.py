"""The interface of a backend to the delegate's core: compile a program, record launches, run and time them.

The core knows graphs, layouts, kernels and memory plans; a backend knows one interface to devices. A program
and the kernel of an entry are the backend's own: the core only hands them back.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from numpy.typing import NDArray

from runtime.delegates.asynchrony import Completion, StartedRun
from runtime.delegates.device_time import DeviceTime, NotTold
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Graph
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.keep.progress import Announced
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.layout.packed_file import Constants, PackedFiles
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.lowering.spec import Launch
from runtime.delegates.gpu.settings.precision import Findings
from runtime.delegates.storage import Storage

Program: TypeAlias = Any
"""The compiled kernels of a partition, in the backend's own form."""

Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many of how many missing kernels are compiled."""


def unwatched(done: int, missing: int) -> None:
    """Progress that nobody follows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One enqueue: layers [first, last) of the recording. `kernel` is in the backend's own form."""

    kernel: Any
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    first: int
    last: int

    @property
    def is_persistent(self) -> bool:
        """Whether groups share several layers, and wait for one another between them."""
        return self.last - self.first > 1 and self.global_size != self.local_size


class Recording(Protocol):
    """Launches bound to memory on a device, ready to be enqueued.

    `rows` holds for each launch the number of its function, the offsets of its pointers in lines of 64 bytes
    and the values of its parameters, `names` the function's name. `constant_bytes` is the memory of all
    weights and other constants, `buffers` the number of the buffer in which those of each launch lie.
    `device_bytes` is the size of everything that is allocated on the device: arena, constants and tables.
    """

    launches: Sequence[Launch]
    rows: Sequence[Sequence[int]]
    names: Sequence[str]
    is_closed: bool
    constant_bytes: int
    device_bytes: int
    buffers: Sequence[int]

    def entry(self, layer: int) -> Entry:
        """Return the enqueue of one layer."""

    def segment(self, first: int, last: int) -> Entry:
        """One enqueue for layers [first, last) of one buffer, where `Capabilities.shares_one_kernel`.

        As many groups as the device has threads share each of them. A group that does not run holds up none.
        """

    def sequence(self, first: int, last: int) -> Entry:
        """Return the enqueue of several layers as one group, which waits for nobody."""

    def first_runs(self, announcement: Announced) -> None:
        """Run every kernel once, on zeros: some drivers compile a kernel when it first runs."""

    def timer(self) -> Callable[[Entry], int]:
        """Return a function that runs one entry alone and returns its nanoseconds on the device."""

    def run(self, entries: Sequence[Entry]) -> None:
        """Enqueue entries in order and wait for the last."""

    def write(self, value: int, content: NDArray[Any]) -> None:
        """Copy a dense host array of the value's type into it, before what is enqueued next.

        Nothing may be running.
        """

    def read(self, value: int, target: NDArray[Any]) -> None:
        """Copy a dense value to a host array of its type. Nothing may be running."""

    def failed_check(self) -> str | None:
        """Return the message of the first check that has failed since the last call, or None if all hold.

        Nothing may be running.
        """

    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""

    def close(self) -> None:
        """Release memory and program; nothing can run any more."""


@runtime_checkable
class AsynchronousRecording(Protocol):
    """A recording that also runs in the background, on memory of the caller's."""

    is_closed: bool
    waits_actively: bool
    """Whether those who wait ask the device all the time."""

    def start(
        self,
        entries: Sequence[Entry],
        inputs: tuple[tuple[int, Storage], ...],
        outputs: tuple[tuple[int, Storage], ...],
        after: Sequence[Completion],
        behind: Sequence[Completion],
    ) -> StartedRun:
        """Enqueue a run on these storages of values behind the ends of others, and wait for nothing.

        The errors of `after` are the run's, those of `behind` are not.

        Until somebody sees that it has ended, `write`, `read` and `run` must not be called.

        Raises `DelegateError` for a storage or an event that cannot be used, before anything is enqueued.
        """


@runtime_checkable
class EventTimedRecording(Protocol):
    """A recording that also runs with events that carry the device's times."""

    def device_time(self, entries: Sequence[Entry]) -> DeviceTime | NotTold:
        """Enqueue entries in order as `run` does, none of them persistent, and wait for the last."""


class Backend(Protocol):
    """One opened device."""

    @property
    def capabilities(self) -> Capabilities:
        """The device's identity and abilities."""

    @property
    def cache(self) -> Cache:
        """The cache of programs and tuning results."""

    def knowing(self, capabilities: Capabilities) -> Self:
        """Return the same device with other capabilities, such as a probe's findings."""

    def findings(self) -> Findings:
        """Return the device's behaviour with numbers narrower than float32; the first call may probe it."""

    def errors(self, what: str, needs: str = "") -> AbstractContextManager[None]:
        """Return a block whose failures become `DeviceError` with `what` and the driver's text.

        `needs` says in a message about memory how much is needed.
        """

    def compile(self, source: Source, progress: Progress = unwatched) -> Program:
        """Make kernels, or take them from where they are kept.

        Raises `DelegateError` with the compiler's first error and its whole log.
        """

    def record(
        self,
        graph: Graph,
        stages: Sequence[Stage],
        source: Source,
        program: Program,
        files: PackedFiles | None = None,
    ) -> Recording:
        """Plan and allocate memory for launches, and bind them to it; `files` may have the constants packed.

        Raises:
            DelegateError: more memory in one piece than the device gives.
            DeviceError: the driver refuses.
        """


@runtime_checkable
class KeepingBackend(Backend, Protocol):
    """A backend with kernels in its cache, with which kept recordings are bound again."""

    def kernel_keys(self, source: Source) -> Mapping[str, str]:
        """Return the keys of a source's kernels, as entries of the kind `kernels`, by the kernels' names."""

    def known(self, kernels: Mapping[str, str]) -> Program | None:
        """Kernels by their names and keys, in this order; None where one is not kept. Nothing compiles."""

    def replayed(self, plan: RecordingPlan, program: Program, constants: Constants) -> Recording:
        """Allocate and bind a plan that an earlier start made. Raises as `Backend.record`."""


@runtime_checkable
class PlannedRecording(Protocol):
    """A recording that can be kept: it has a plan, and the keys and sizes of the files of its constants."""

    plan: RecordingPlan
    constant_files: Mapping[int, tuple[str, int]]
