"""The abilities a delegate may have besides running a model: checks, compiling ahead, and times of kernels.

`runtime.tools.operator_check` compares every operator of a delegate with the CPU path on one device; what
differs there is not delegated to that device any more. `runtime.tools.priming` lets a delegate compile what
given models need on its device: nothing is packed, timed or run, and a model that is opened later finds its
kernels. `runtime.plan.profile` reads the time of each kernel of one run, `runtime.measure.profile` the peaks
of the device.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from runtime.common.profile import Peaks
from runtime.delegates.base import Array, Partition


@dataclass(frozen=True, slots=True)
class Conformance:
    """Operators by name: those whose outputs agreed with the CPU path, and how the others differed."""

    agreed: tuple[str, ...] = ()
    wrong: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{len(self.agreed)} operators agree with the CPU path"
        return f"{text}, {len(self.wrong)} do not: {', '.join(self.wrong)}" if self.wrong else text


@runtime_checkable
class Checkable(Protocol):
    """A delegate that keeps, for its device, the result of a check of its operators."""

    def conformance(self) -> Conformance | None:
        """Return the result of an earlier check of the device with the same kernels, or None."""

    def keep_conformance(self, found: Conformance) -> None:
        """Keep what a check found, for models that are opened from now on."""


@dataclass(frozen=True, slots=True)
class Primed:
    """The number of kernels that were kept already, and of new ones; why others are missing."""

    device: str
    known: int
    compiled: int
    failures: tuple[str, ...] = ()


@runtime_checkable
class Primable(Protocol):
    """A delegate that keeps compiled kernels, and takes them from there."""

    def prime(self, name: str, partitions: Iterable[Partition]) -> Primed:
        """Compile and keep what partitions need of the delegate's device, the most frequent first.

        `name` stands for the partitions: where all that one of this name needed is still kept, they are not
        asked for. What is done when an exception ends it stays. Raises `DelegateError` where nothing can be
        kept.
        """


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel of one run.

    `time_ns` is what it took on the device, by itself: nothing else was enqueued. `flops` and `bytes` are its
    family's count of what it computes and moves; `operators` are the indices of the model's operators.
    """

    function: str
    label: str
    operators: tuple[int, ...]
    time_ns: int
    flops: int
    bytes: int


@runtime_checkable
class ProfiledPartition(Protocol):
    """A compiled partition that also times each of its kernels."""

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[KernelTime]:
        """Run once like `invoke`, but wait for each kernel; the kernels' times, in order.

        Such a run takes longer than `invoke`, and the sum of its times is not what `invoke` takes.
        """


@runtime_checkable
class HasPeaks(Protocol):
    """A delegate that measures how fast its device computes and moves data at best."""

    def peaks(self) -> Peaks:
        """Run two small programs, some tenths of a second. Raises `DelegateError` where it cannot."""


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """One run on a device, in ns of the device's clock.

    `busy_ns`: the sum of END - START over the events of everything that the run enqueued, without copies
    between host and device. `queue_ns`: START - QUEUED of the first of these events; those of the others
    would count the work before them. Of several partitions both are sums.
    """

    busy_ns: int
    queue_ns: int


@dataclass(frozen=True, slots=True)
class NotTold:
    """Why there are no such times. A value, not an exception: a result shows it."""

    reason: str


@runtime_checkable
class DeviceTimedPartition(Protocol):
    """A compiled partition that also returns its device's times of a run."""

    def device_time(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> DeviceTime | NotTold:
        """Run once like `invoke`, with events that carry times; without times, outputs are undefined."""


@runtime_checkable
class DeviceTimedModel(Protocol):
    """A loaded model that also returns its device's times, beside the methods of `LoadedModel`."""

    def device_time(self) -> DeviceTime | NotTold:
        """Run once on the inputs as they are; without such times, outputs are undefined."""
