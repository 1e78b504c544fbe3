"""The times of one run by a delegate's device's own clock: how long it computed, how late it began.

Events of a device tell more than a clock of the host can, and asking for them costs time: who asks does so in
runs of their own, never in those whose latency is measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from runtime.delegates.base import Array


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
