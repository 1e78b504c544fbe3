"""A recorded launch list on a CUDA device: memory, launches, and one graph that runs them all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.base import Entry
from runtime.delegates.gpu.backends.cuda.device import OpenedDevice
from runtime.delegates.gpu.backends.cuda.driver import CONSTANTS, CudaError, driver
from runtime.delegates.gpu.backends.cuda.library import LoadedKernels
from runtime.delegates.gpu.graph.graph import LINE
from runtime.delegates.gpu.keep.progress import Announced
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.lowering.spec import Launch

SLACK: Final = 256
"""Bytes behind a buffer that a kernel may read, as on OpenCL: a vector that starts at the last element."""

PARAMETERS: Final = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32)
"""Types of what a kernel is given: arena, constants, table, and the number of its layer."""

_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A launch with its parameters. `values` are those to which the addresses in `parameters` point."""

    function: int
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    dynamic_bytes: int
    values: tuple[Any, ...]
    parameters: Any


class CudaRecording:
    """Launches bound to memory on a device; see `backends.base.Recording`.

    Made and used where the device's context is current (`Backend.errors`); `close` makes it so itself.
    """

    def __init__(
        self, opened: OpenedDevice, plan: RecordingPlan, program: LoadedKernels, constants: Constants
    ) -> None:
        self._opened, self._cuda, self._kernels, self.plan = opened, driver(), program.kernels, plan
        self.is_closed: bool = False
        self.constant_bytes: int = plan.constant_bytes
        self.buffers: Sequence[int] = plan.buffers
        self.launches: Sequence[Launch] = plan.launches
        self.rows: Sequence[Sequence[int]] = plan.rows
        self.names: Sequence[str] = plan.names
        self.device_bytes: int = 0
        self._memory: list[int] = []
        self._pinned: dict[int, NDArray[np.uint8]] = {}
        self._graphs: dict[tuple[int, ...], int] = {}
        # Non-blocking: the default stream of other users of the context is no concern of this one.
        self._stream = self._cuda.handle("cuStreamCreate", CONSTANTS["CU_STREAM_NON_BLOCKING"])
        try:
            size = plan.arena_bytes + SLACK
            self._arena = self._allocate(size)
            # Padded lanes that no kernel has written must be finite.
            self._cuda.call("cuMemsetD8Async", self._arena, 0, size, self._stream)
            self._constants = [self._pack(constants, number) for number in range(len(plan.constant_sizes))]
            self.constant_files: Mapping[int, tuple[str, int]] = constants.found
            self._table = self._copied(tabulated(plan.rows).view(np.uint8))
            self.finish()
        except BaseException:
            self.close()
            raise

    def _allocate(self, size: int) -> int:
        address = self._cuda.handle("cuMemAlloc_v2", size)
        self._memory.append(address)
        self.device_bytes += size
        return address

    def _copied(self, content: NDArray[np.uint8]) -> int:
        address = self._allocate(content.nbytes)
        self._cuda.call("cuMemcpyHtoD_v2", address, content.ctypes.data, content.nbytes)
        return address

    def _pack(self, constants: Constants, number: int) -> int:
        content = constants.mapped(number)
        if content is None:
            content = np.empty(self.plan.constant_sizes[number] + SLACK, np.uint8)
            constants.fill(number, content)
        return self._copied(content)

    def entry(self, layer: int) -> Entry:
        """Return the launch of one layer."""
        launch, kernel = self.launches[layer], self._kernels[self.rows[layer][0]]
        items = (*launch.local_size, 1, 1)[:3]
        sizes = (*launch.global_size, 1, 1)[:3]
        groups = (sizes[0] // items[0], sizes[1] // items[1], sizes[2] // items[2])
        given = (self._arena, self._constants[self.buffers[layer]], self._table, layer)
        values = tuple(kind(value) for kind, value in zip(PARAMETERS, given, strict=True))
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        bound = BoundKernel(kernel.function, groups, items, kernel.dynamic_bytes, values, parameters)
        return Entry(bound, launch.global_size, launch.local_size, layer, layer + 1)

    def segment(self, first: int, last: int) -> Entry:
        """Not on CUDA, whose kernels run one layer; a graph launches all of them at once."""
        raise NotImplementedError(f"layers {first} to {last} in one kernel")

    def sequence(self, first: int, last: int) -> Entry:
        """Not on CUDA, as `segment`."""
        raise NotImplementedError(f"layers {first} to {last} in one kernel")

    def first_runs(self, announcement: Announced) -> None:
        """Run every kernel once, on zeros, and make the graph of all of them."""
        entries = [self.entry(layer) for layer in range(len(self.launches))]
        announcement.doing = f"running {len(entries)} launches on {self._opened.capabilities.name}"
        self.run(entries)

    def _launch(self, entry: Entry) -> None:
        one = entry.kernel
        self._cuda.call("cuLaunchKernel", one.function, *one.groups, *one.items, one.dynamic_bytes,
                        self._stream, one.parameters, None)  # fmt: skip

    def _graph(self, entries: Sequence[Entry]) -> int:
        """Return the graph of these launches, captured from the stream where there is none yet."""
        key = tuple(entry.first for entry in entries)
        if key not in self._graphs:
            cuda, stream = self._cuda, self._stream
            cuda.call("cuStreamBeginCapture_v2", stream, CONSTANTS["CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"])
            try:
                for entry in entries:
                    self._launch(entry)
            finally:
                ended = ctypes.c_void_p()
                cuda.call("cuStreamEndCapture", stream, ctypes.byref(ended))
            try:
                self._graphs[key] = cuda.handle("cuGraphInstantiateWithFlags", ended, 0)
            finally:
                cuda.call("cuGraphDestroy", ended)
        return self._graphs[key]

    def run(self, entries: Sequence[Entry]) -> None:
        """Launch the graph of the entries, once, and wait for its end."""
        if entries:
            self._cuda.call("cuGraphLaunch", self._graph(entries), self._stream)
        self.finish()

    def timer(self) -> Callable[[Entry], int]:
        """Return a timer by events around one launch. See `backends.base.Recording.timer`."""
        cuda = self._cuda

        def timed(entry: Entry) -> int:
            events = [cuda.handle("cuEventCreate", CONSTANTS["CU_EVENT_DEFAULT"]) for _ in range(2)]
            try:
                cuda.call("cuEventRecord", events[0], self._stream)
                self._launch(entry)
                cuda.call("cuEventRecord", events[1], self._stream)
                self.finish()
                took_ms = ctypes.c_float()
                cuda.call("cuEventElapsedTime", ctypes.byref(took_ms), *events)
            finally:
                for event in events:
                    cuda.call("cuEventDestroy_v2", event)
            return round(took_ms.value * _NS_PER_MS)

        return timed

    def _staged(self, value: int, size: int) -> NDArray[np.uint8]:
        """Return page-locked memory for a value, which the device copies without the processor."""
        if value not in self._pinned:
            address = self._cuda.handle("cuMemHostAlloc", size, 0)
            self._pinned[value] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        return self._pinned[value]

    def write(self, value: int, content: NDArray[Any]) -> None:
        """Copy a dense host array into a value. See `backends.base.Recording.write`."""
        if content.nbytes:
            staged, place = self._staged(value, content.nbytes), self._arena + self.plan.offsets[value]
            staged.view(content.dtype).reshape(content.shape)[...] = content
            self._cuda.call("cuMemcpyHtoDAsync_v2", place, staged.ctypes.data, content.nbytes, self._stream)

    def read(self, value: int, target: NDArray[Any]) -> None:
        """Copy a dense value to a host array. See `backends.base.Recording.read`."""
        if target.nbytes:
            staged = self._staged(value, target.nbytes)
            self._fetch(self.plan.offsets[value], staged)
            target[...] = staged.view(target.dtype).reshape(target.shape)

    def _fetch(self, offset: int, into: NDArray[np.uint8]) -> None:
        place = self._arena + offset
        self._cuda.call("cuMemcpyDtoHAsync_v2", into.ctypes.data, place, into.nbytes, self._stream)
        self.finish()

    def failed_check(self) -> str | None:
        """Read the checks and clear them. See `backends.base.Recording.failed_check`."""
        checks, start = self.plan.checks, self.plan.checks_offset
        if not checks:
            return None
        lines = np.empty(len(checks) * LINE, np.uint8)
        self._fetch(start, lines)
        failed = np.flatnonzero(lines.view(np.int32).reshape(len(checks), -1)[:, 0])
        if not failed.size:
            return None
        self._cuda.call("cuMemsetD8Async", self._arena + start, 0, lines.nbytes, self._stream)
        return checks[int(failed[0])].message

    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""
        self._cuda.call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Release memory, graphs and stream; nothing can run any more."""
        if self.is_closed:
            return
        self.is_closed = True
        # A device that is lost has nothing to wait for, and its driver refuses to release.
        with suppress(CudaError), self._opened.current() as cuda:
            with suppress(CudaError):
                self.finish()
            ends = [("cuGraphExecDestroy", graph) for graph in self._graphs.values()]
            ends += [("cuMemFree_v2", address) for address in self._memory]
            ends += [("cuMemFreeHost", staged.ctypes.data) for staged in self._pinned.values()]
            for name, handle in (*ends, ("cuStreamDestroy_v2", self._stream)):
                with suppress(CudaError):
                    cuda.call(name, handle)
        self._graphs, self._memory, self._pinned, self._kernels = {}, [], {}, ()


def tabulated(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Return the table of layers: for each the place at which its row begins, then the rows."""
    starts, end = [], len(rows)
    for row in rows:
        starts.append(end)
        end += len(row)
    return np.array([*starts, *(cell for row in rows for cell in row)], np.int32)
