"""A recorded launch list on a CUDA device: memory, launches, and one graph that runs them all."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.base import Entry, Recording
from runtime.delegates.gpu.backends.cuda.device import OpenedDevice
from runtime.delegates.gpu.backends.cuda.driver import CONSTANTS, CudaError, driver
from runtime.delegates.gpu.backends.cuda.library import LoadedKernels
from runtime.delegates.gpu.keep.progress import Announced
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD, RecordingPlan

PARAMETERS: Final = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32)
"""Types of what a kernel is given: arena, constants, table, and the number of its layer."""

_NS_PER_MS: Final = 1_000_000
"""Nanoseconds of a millisecond, in which events tell times; by definition."""


@dataclass(frozen=True, slots=True)
class BoundKernel:
    """A launch with its parameters. `values` are those to which the addresses in `parameters` point."""

    function: int
    groups: tuple[int, ...]
    items: tuple[int, ...]
    dynamic_bytes: int
    values: tuple[Any, ...]
    parameters: Any


class CudaRecording(Recording):
    """Launches bound to memory on a device.

    Made and used where the device's context is current (`Backend.errors`); `close` makes it so itself.
    """

    queues_uploads = True

    def __init__(
        self, opened: OpenedDevice, plan: RecordingPlan, program: LoadedKernels, constants: Constants
    ) -> None:
        super().__init__(opened.capabilities, plan, constants)
        self._opened, self._cuda, self._kernels = opened, driver(), program.kernels
        self.device_bytes = 0
        self._memory: list[int] = []
        self._pinned: dict[tuple[int, int], NDArray[np.uint8]] = {}
        self._graphs: dict[tuple[int, ...], int] = {}
        # Non-blocking: the default stream of other users of the context is no concern of this one.
        self._stream = self._cuda.handle("cuStreamCreate", CONSTANTS["CU_STREAM_NON_BLOCKING"])
        try:
            size = plan.arena_bytes + READ_AHEAD
            self._arena = self._allocate(size)
            # Padded lanes that no kernel has written must be finite.
            self._cuda.call("cuMemsetD8Async", self._arena, 0, size, self._stream)
            self._constants = [self._pack(constants, number) for number in range(len(plan.constant_sizes))]
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
            content = np.empty(self.plan.constant_sizes[number] + READ_AHEAD, np.uint8)
            constants.fill(number, content)
        return self._copied(content)

    def entry(self, layer: int) -> Entry:
        """Return the launch of one layer."""
        launch, kernel = self.launches[layer], self._kernels[self.rows[layer][0]]
        items, sizes = ((*size, 1, 1)[:3] for size in (launch.local_size, launch.global_size))
        groups = tuple(size // item for size, item in zip(sizes, items, strict=True))
        given = (self._arena, self._constants[self.buffers[layer]], self._table, layer)
        values = tuple(kind(value) for kind, value in zip(PARAMETERS, given, strict=True))
        parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        bound = BoundKernel(kernel.function, groups, items, kernel.dynamic_bytes, values, parameters)
        return Entry(bound, launch.global_size, launch.local_size, layer, layer + 1)

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
        # On CUDA every entry is a single layer, so its first number identifies it.
        key = tuple(entry.first for entry in entries)
        if key not in self._graphs:
            cuda, stream = self._cuda, self._stream
            # Thread-local mode, so that calls of other threads that
            # cannot be captured do not invalidate this capture.
            cuda.call("cuStreamBeginCapture_v2", stream, CONSTANTS["CU_STREAM_CAPTURE_MODE_THREAD_LOCAL"])
            try:
                for entry in entries:
                    self._launch(entry)
            finally:
                # After an error as well: a stream executes nothing until its capture ends.
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

    def _staged(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Return page-locked memory for a part of the arena: the device copies it by itself."""
        if (offset, size) not in self._pinned:
            address = self._cuda.handle("cuMemHostAlloc", size, 0)
            content = (ctypes.c_uint8 * size).from_address(address)
            self._pinned[offset, size] = np.ctypeslib.as_array(content)
        return self._pinned[offset, size]

    def _upload(self, offset: int, content: NDArray[Any]) -> None:
        if size := content.nbytes:
            staged = self._staged(offset, size)
            # No earlier copy is still reading it, since every run waits for the stream.
            staged[:] = content.reshape(-1).view(np.uint8)
            place = self._arena + offset
            self._cuda.call("cuMemcpyHtoDAsync_v2", place, staged.ctypes.data, size, self._stream)

    def _download(self, offset: int, target: NDArray[Any]) -> None:
        if size := target.nbytes:
            staged = self._staged(offset, size)
            place = self._arena + offset
            self._cuda.call("cuMemcpyDtoHAsync_v2", staged.ctypes.data, place, size, self._stream)
            self.finish()
            target.reshape(-1).view(np.uint8)[:] = staged

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
