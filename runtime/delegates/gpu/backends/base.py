"""The interface of a backend to the delegate's core: compile a program, record launches, run and time them.

The core knows graphs, layouts, kernels and memory plans; a backend knows one interface to devices. A program
and the kernel of an entry are the backend's own: the core only hands them back.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.abilities import DeviceTime, NotTold
from runtime.delegates.asynchrony import Completion, StartedRun
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import LINE, Graph
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.keep.progress import Announced
from runtime.delegates.gpu.layout.memory import Stage, place_on
from runtime.delegates.gpu.layout.packed_file import Constants, PackedFiles, PlacedConstants
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD, RecordingPlan, planned
from runtime.delegates.gpu.layout.source import Source
from runtime.delegates.gpu.lowering.spec import Code, Launch
from runtime.delegates.gpu.settings.precision import Findings
from runtime.delegates.storage import Storage
from runtime.errors import DelegateError

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
        # A `sequence` is a single group, so both of its sizes are equal.
        return self.last - self.first > 1 and self.global_size != self.local_size


class Recording(ABC):
    """A plan's launches bound to memory on a device, ready to be enqueued.

    `rows` holds for each launch the number of its function, the offsets of its pointers in lines of 64 bytes
    and the values of its parameters, `names` the function's name. `constant_bytes` is the memory of all
    weights and other constants, `buffers` the number of the buffer in which those of each launch lie.
    `device_bytes` is the size of everything that is allocated on the device: arena, constants and tables.
    `constant_files` are the keys and the sizes of the files of constants.
    """

    runs_in_background: ClassVar[bool] = False
    """Whether `start` works."""

    queues_uploads: ClassVar[bool] = False
    """Whether `write` returns before the device has what it copies; `finish` then waits for it."""

    waits_actively: bool = False
    """Whether those who wait ask the device all the time."""

    device_bytes: int

    def __init__(self, device: Capabilities, plan: RecordingPlan, constants: Constants) -> None:
        self.device = device
        self.plan = plan
        self.is_closed = False
        self.constant_bytes = plan.constant_bytes
        self.constant_files = constants.found
        self.buffers: Sequence[int] = plan.buffers
        self.launches: Sequence[Launch] = plan.launches
        self.rows: Sequence[Sequence[int]] = plan.rows
        self.names: Sequence[str] = plan.names

    @abstractmethod
    def entry(self, layer: int) -> Entry:
        """Return the enqueue of one layer."""

    def segment(self, first: int, last: int) -> Entry:
        """One enqueue for layers [first, last) of one buffer, where `Capabilities.shares_one_kernel`.

        As many groups as the device has threads share each of them. A group that does not run holds up none.
        """
        raise NotImplementedError(f"layers {first} to {last} in one kernel")

    def sequence(self, first: int, last: int) -> Entry:
        """Return the enqueue of several layers as one group, which waits for nobody; as for `segment`."""
        raise NotImplementedError(f"layers {first} to {last} in one kernel")

    def first_runs(self, announcement: Announced) -> None:
        """Run every kernel once, on zeros: some drivers compile a kernel when it first runs."""
        seen: dict[str, int] = {}
        for layer, name in enumerate(self.names):
            seen.setdefault(name, layer)
        for number, layer in enumerate(seen.values(), 1):
            announcement.doing = f"compiling kernel {number} of {len(seen)}, {self.names[layer]}"
            self.run([self.entry(layer)])

    @abstractmethod
    def timer(self) -> Callable[[Entry], int]:
        """Return a function that runs one entry alone and returns its nanoseconds on the device."""

    def device_time(self, entries: Sequence[Entry]) -> DeviceTime | NotTold:  # noqa: ARG002 - what others time
        """Enqueue entries in order as `run` does, none of them persistent, and wait for the last."""
        return NotTold(f"{self.device.name}: events of this backend carry no times")

    @abstractmethod
    def run(self, entries: Sequence[Entry]) -> None:
        """Enqueue entries in order and wait for the last."""

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
        raise NotImplementedError("runs in the background")

    @abstractmethod
    def _upload(self, offset: int, content: NDArray[Any]) -> None:
        """Copy a dense host array into the arena, before what is enqueued next."""

    @abstractmethod
    def _download(self, offset: int, target: NDArray[Any]) -> None:
        """Copy a part of the arena to a dense host array, behind what was enqueued."""

    def write(self, value: int, content: NDArray[Any]) -> None:
        """Copy a host array of the value's type into it, before the next enqueue. Nothing may be running."""
        self._upload(self.plan.offsets[value], np.ascontiguousarray(content))

    def read(self, value: int, target: NDArray[Any]) -> None:
        """Copy a dense value to a host array of its type. Nothing may be running."""
        dense = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        self._download(self.plan.offsets[value], dense)
        if dense is not target:
            target[...] = dense

    def failed_check(self) -> str | None:
        """Return the message of the first check that has failed since the last call, or None if all hold.

        Nothing may be running.
        """
        if not self.plan.checks:
            return None
        flags = np.empty(len(self.plan.checks) * LINE // 4, np.int32)
        self._download(self.plan.checks_offset, flags)
        failed = self._first_failed(flags)
        if failed is not None:
            # Kernels only ever set flags, so a stale one would fail the next run as well.
            self._upload(self.plan.checks_offset, np.zeros_like(flags))
        return failed

    def _first_failed(self, flags: NDArray[np.int32]) -> str | None:
        """Return the message of the first check whose flag, the first integer of its line, is set."""
        failed = np.flatnonzero(flags.reshape(len(self.plan.checks), -1)[:, 0])
        return self.plan.checks[int(failed[0])].message if failed.size else None

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""

    @abstractmethod
    def close(self) -> None:
        """Release memory and program; nothing can run any more."""


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
        """Make kernels, or take them from where they are kept. One that depends on sizes, `record` makes.

        Raises `DelegateError` with the compiler's first error and its whole log, and `GroupLimitError`.
        """

    def record(self, plan: RecordingPlan, program: Program, constants: Constants) -> Recording:
        """Allocate memory for a plan's launches, and bind them to it. Raises `DeviceError`."""


class GroupLimitError(DelegateError):
    """A device runs kernels in smaller work-groups only than they are made for; `refused` has the reasons."""

    def __init__(self, refused: Mapping[Code, str]) -> None:
        super().__init__(f"gpu delegate: {'; '.join(refused.values())}")
        self.refused = refused


def check_groups(device: str, source: Source, limits: Iterable[int]) -> None:
    """Raise `GroupLimitError` where groups of a kernel are larger than its limit; in the source's order.

    A kernel that needs many registers has a limit of its own, which is known once it is built.
    """
    refused = {
        function.code: f"{device} runs {kernel.name} in work-groups of at most {most} items, and it is made "
        f"for {prod(kernel.group)}: it takes too many registers there"
        for function, kernel, most in zip(source.numbers, source.kernels, limits, strict=True)
        if prod(kernel.group) > most
    }
    if refused:
        raise GroupLimitError(refused)


def recorded(
    backend: Backend,
    graph: Graph,
    stages: Sequence[Stage],
    source: Source,
    program: Program,
    files: PackedFiles | None = None,
) -> Recording:
    """Place the memory of launches and record them; `files` may have the constants packed.

    Raises:
        DelegateError: more memory in one piece than the device gives.
        DeviceError: the driver refuses.
    """
    placement = place_on(backend.capabilities, graph, stages)
    plan = planned(placement, source, backend.capabilities)
    return backend.record(plan, program, PlacedConstants(placement, files, READ_AHEAD))


@runtime_checkable
class KeepingBackend(Backend, Protocol):
    """A backend with kernels in its cache, with which kept recordings are bound again."""

    def kernel_keys(self, source: Source) -> Mapping[str, str]:
        """Return the keys of a source's kernels, as entries of the kind `kernels`, by the kernels' names."""

    def known(self, kernels: Mapping[str, str]) -> Program | None:
        """Kernels by their names and keys, in this order; None where one is not kept. Nothing compiles."""
