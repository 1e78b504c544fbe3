"""Puts a caller's memory in the place of a graph's inputs and outputs.

Where kernels can reach it, its place goes into the table of layers; else the device copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import OpenedDevice
from runtime.delegates.gpu.backends.opencl.storage import BufferStorage, SvmStorage
from runtime.delegates.gpu.graph.graph import LINE
from runtime.delegates.gpu.layout.memory import extent
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD, RecordingPlan
from runtime.delegates.storage import HostStorage, Place, Storage
from runtime.errors import DelegateError

_NEAREST_LINE = -(1 << 30)
"""The smallest offset in lines that a row holds, `NEAREST_LINE` of `kernels/called.cl`: smaller integers say
where an address stands. 2^30 lines are 64 GiB in front of the arena."""

_FURTHEST_LINE = (1 << 31) - 1
"""The largest offset in lines that a row holds, an int: 128 GiB behind the arena."""

_FAR = -(1 << 31)
"""INT_MIN, to which the distance of an address from its row is added."""

_LOW = 0xFFFFFFFF
"""The low half of an address."""

Given: TypeAlias = tuple[tuple[int, Storage], ...]
"""Values of the graph, each with the memory that a caller gives for it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The treatment of one run's storages: addresses by value, and the values that are copied, with why."""

    addresses: dict[int, int]
    copied_in: Given
    copied_out: Given
    reasons: tuple[str, ...]


class CallerMemory:
    """Knows where the rows of a table name the graph's inputs and outputs, and what may stand there.

    `arena` is the arena's address where kernels reach the host's memory, else None.
    """

    def __init__(self, opened: OpenedDevice, plan: RecordingPlan, arena: int | None) -> None:
        self._opened = opened
        self._graph = plan.graph
        self._arena = arena
        self._references = plan.references
        self._last: tuple[tuple[Given, Given], Bound] | None = None
        rows = plan.rows
        # In front of the rows stand their starts and one more, the end of the last.
        starts = np.cumsum([len(rows) + 1, *map(len, rows)])
        self._starts = [int(start) for start in starts]
        # Room for both halves of an address, for each reference that may lie out of an offset's
        # reach. Only functions that are called by address look there (`kernels/called.cl`).
        far = [0] * (2 * sum(map(len, self._references.values())) * opened.capabilities.shares_one_kernel)
        self.table: NDArray[np.int32] = np.array(
            [*starts, *(number for row in rows for number in row), *far], np.int32
        )
        self._first_far = len(self.table) - len(far)

    def bind(self, inputs: Given, outputs: Given) -> Bound:
        """Decide for each storage. Raises `DelegateError` for one that cannot hold its value."""
        if self._last is None or self._last[0] != (inputs, outputs):
            self._last = (inputs, outputs), self._decide(inputs, outputs)
        return self._last[1]

    def _decide(self, inputs: Given, outputs: Given) -> Bound:
        addresses: dict[int, int] = {}
        taken: list[tuple[int, int, bool]] = []
        copied_in: list[tuple[int, Storage]] = []
        copied_out: list[tuple[int, Storage]] = []
        reasons = []
        for is_output, given in ((False, inputs), (True, outputs)):
            for value, storage in given:
                self._check(value, storage, is_output=is_output)
                reason = self._why_copied(value, storage, taken, is_output=is_output)
                if reason is None:
                    place = _place_of(storage)
                    addresses[value] = place.address
                    taken.append((place.address, place.address + extent(self._graph, value), is_output))
                else:
                    (copied_out if is_output else copied_in).append((value, storage))
                    reasons.append(f"{self._name(value, is_output=is_output)} is copied: {reason}")
        return Bound(addresses, tuple(copied_in), tuple(copied_out), tuple(reasons))

    def bound_table(self, addresses: dict[int, int]) -> NDArray[np.int32]:
        """Return the table with these addresses in the place of the arena's."""
        table, far = self.table.copy(), self._first_far
        for value, address in addresses.items():
            for reference in self._references[value]:
                place = self._starts[reference.row] + reference.column
                line = self._lines(address) + reference.lines
                if self._is_near(line):
                    table[place] = line
                    continue
                exact = address + reference.lines * LINE
                table[far : far + 2] = np.array([exact & _LOW, exact >> 32], np.uint32).view(np.int32)
                # Relative to the row, which is all of the table that a function is given.
                table[place] = _FAR + far - self._starts[reference.row]
                far += 2
        return table

    def bytes_of(self, value: int) -> int:
        """Return the bytes of a value's elements, dense."""
        known = self._graph.values[value]
        return known.elements * known.type.size

    def _lines(self, address: int) -> int:
        assert self._arena is not None
        # Exact: the arena begins on a page, and `_why_copied` has refused addresses that are not on a line.
        return (address - self._arena) // LINE

    @staticmethod
    def _is_near(line: int) -> bool:
        return _NEAREST_LINE <= line <= _FURTHEST_LINE

    def _name(self, value: int, *, is_output: bool) -> str:
        return f"{'output' if is_output else 'input'} {self._graph.values[value].name!r}"

    def _check(self, value: int, storage: Storage, *, is_output: bool) -> None:
        name, needed = self._name(value, is_output=is_output), self.bytes_of(value)
        device = self._opened.capabilities.name
        if storage.size < needed:
            raise DelegateError(
                f"gpu delegate: {name} takes {needed} bytes, its buffer has {storage.size}; make it larger"
            )
        if isinstance(storage, BufferStorage):
            if storage.context != self._opened.context:
                devices = ", ".join(found.name.strip() for found in storage.context.devices)
                raise DelegateError(
                    f"gpu delegate: the buffer of {name} belongs to another OpenCL context, on {devices}; "
                    f"make it in the model's own (`opencl_context`), on {device}"
                )
            if not (storage.is_writable if is_output else storage.is_readable):
                access = "READ_ONLY" if is_output else "WRITE_ONLY"
                raise DelegateError(
                    f"gpu delegate: the buffer of {name} was made with {access}; make it with READ_WRITE"
                )
        elif isinstance(storage, SvmStorage) and self._arena is None and not self._shares_svm():
            raise DelegateError(
                f"gpu delegate: {device} has no fine-grained shared virtual memory, which {name} needs; "
                "use a pyopencl.Buffer"
            )
        elif not isinstance(storage, HostStorage):
            raise DelegateError(
                f"gpu delegate: {name}: a device of OpenCL cannot use {type(storage).__name__}; use host "
                "memory or a pyopencl.Buffer"
            )

    def _shares_svm(self) -> bool:
        return bool(self._opened.device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)

    def _why_copied(
        self, value: int, storage: Storage, taken: Iterable[tuple[int, int, bool]], *, is_output: bool
    ) -> str | None:
        """Return why a value is copied; None if kernels can use the memory itself, last vectors included."""
        if self._arena is None:
            return f"kernels on {self._opened.capabilities.name} reach the delegate's own memory only"
        if value in self._graph.states:
            return "a variable stays with the model"
        place, size = _place_of(storage), extent(self._graph, value)
        if place.address % LINE:
            return f"its memory begins {place.address % LINE} bytes behind a multiple of {LINE}"
        if is_output and place.writable < size:
            return f"kernels write {size} bytes, and its memory ends after {place.writable}"
        if place.readable < size + READ_AHEAD:
            return (
                f"kernels may read {size + READ_AHEAD} bytes, and {place.readable} are known to be readable; "
                "make the memory larger"
            )
        # Two inputs may share memory, since nothing writes to it.
        if any(
            place.address < end and start < place.address + size and (is_output or written)
            for start, end, written in taken
        ):
            return "its memory is that of another tensor of the run"
        reach = [self._lines(place.address) + reference.lines for reference in self._references[value]]
        if not self._opened.capabilities.shares_one_kernel and not all(map(self._is_near, reach)):
            return "its memory lies further from the delegate's own than an offset reaches"
        return None


def _place_of(storage: Storage) -> Place:
    assert isinstance(storage, (BufferStorage, HostStorage))
    return storage.place
