"""A recorded launch list: buffers, kernels with their arguments set once, and the calls that enqueue them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.abilities import DeviceTime, NotTold
from runtime.delegates.asynchrony import Completion, StartedRun
from runtime.delegates.gpu.backends.base import Entry, Recording
from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.by_address import counters
from runtime.delegates.gpu.backends.opencl.caller_memory import CallerMemory
from runtime.delegates.gpu.backends.opencl.device import OpenedDevice
from runtime.delegates.gpu.backends.opencl.faults import device_errors
from runtime.delegates.gpu.backends.opencl.library import LoadedKernels
from runtime.delegates.gpu.backends.opencl.run import OpenClEvent, OpenClRun, events_of
from runtime.delegates.gpu.backends.opencl.storage import BufferStorage
from runtime.delegates.gpu.graph.graph import LINE
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD, RecordingPlan
from runtime.delegates.storage import HostStorage, Storage
from runtime.errors import InvocationError

_FINISH_EVERY = 96
"""Enqueues after which a run waits for the queue. PoCL's cost of an enqueue grows with the length of the
queue: about 4 microseconds in batches of 100, 24 with 1000 queued (measured). Smaller, and waiting costs
more."""

_PAGE = 4096
"""Bytes to which host memory for a device is aligned: drivers use whole pages as they are and copy others."""


def aligned_empty(size: int, alignment: int = _PAGE) -> NDArray[np.uint8]:
    """Uninitialised memory of `size` bytes at an aligned address."""
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


class OpenClRecording(Recording):
    """Launches bound to a device's memory, with references to its buffers, which kernels do not keep."""

    runs_in_background = True

    def __init__(
        self, opened: OpenedDevice, plan: RecordingPlan, program: LoadedKernels, constants: Constants
    ) -> None:
        super().__init__(opened.capabilities, plan, constants)
        self._cl = cl
        self._opened = opened
        self._tables: tuple[cl.Buffer, ...] = ()
        self._running: deque[OpenClRun] = deque()
        self._addresses: dict[int, int] = {}
        self._kernels = program
        what = f"allocating memory on {opened.capabilities.name}"
        with device_errors(what, opened.context, plan.needs):
            self.queue = cl.CommandQueue(opened.context)
            self.arena, self._arena_memory = self._allocate(plan.arena_bytes + READ_AHEAD, writable=True)
            reached = None if self._reached_memory is None else int(self._reached_memory.ctypes.data)
            self._callers = CallerMemory(opened, plan, reached)
            self.constants = [self._pack(constants, number) for number in range(len(plan.constant_sizes))]
            self._bind()
            allocated = (self.arena, *self.constants, *self._tables)
            self.device_bytes = sum(int(buffer.size) for buffer in allocated)

    def _allocate(self, size: int, *, writable: bool) -> tuple[cl.Buffer, NDArray[np.uint8] | None]:
        """Allocate a buffer of `size` bytes; also return the host memory under it on a CPU device, else None.

        Zeros where it is writable, because padded lanes that no kernel has written must be finite.
        """
        flags = self._cl.mem_flags
        access = flags.READ_WRITE if writable else flags.READ_ONLY
        context = self._opened.context
        if self._opened.capabilities.is_gpu:
            buffer = self._cl.Buffer(context, access, size)
            if writable:
                self._cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint8), 0, size)
            return buffer, None
        memory = aligned_empty(size)
        if writable:
            memory[:] = 0
        return self._cl.Buffer(context, access | flags.USE_HOST_PTR, hostbuf=memory), memory

    def _pack(self, constants: Constants, number: int) -> cl.Buffer:
        """One buffer of constants: on a CPU device the mapped file itself, where there is one."""
        mapped = constants.mapped(number)
        if mapped is not None and not self._opened.capabilities.is_gpu:
            flags = self._cl.mem_flags
            access = flags.READ_ONLY | flags.USE_HOST_PTR
            return self._cl.Buffer(self._opened.context, access, hostbuf=mapped)
        size = self.plan.constant_sizes[number] + READ_AHEAD
        buffer, memory = self._allocate(size, writable=False)
        content = mapped
        if content is None:
            content = np.empty(size, np.uint8) if memory is None else memory
            constants.fill(number, content)
        if memory is None:
            # Blocking, because nothing keeps `content` alive any longer.
            self._cl.enqueue_copy(self.queue, buffer, content, is_blocking=True)
        return buffer

    def _bind(self) -> None:
        """Three tables: for each layer the place at which its row begins, the end, then the rows; the
        functions' addresses; the counters of the groups that share layers.
        """
        table = self._callers.table
        flags = self._cl.mem_flags
        context = self._opened.context
        addresses = np.array(self._kernels.addresses or [0], np.uint64)
        self._tables = tuple(
            self._cl.Buffer(context, access | flags.COPY_HOST_PTR, hostbuf=content)
            for access, content in (
                (flags.READ_ONLY, table),
                (flags.READ_ONLY, addresses),
                (flags.READ_WRITE, counters(self._opened.capabilities.compute_units)),
            )
        )

    def entry(self, layer: int) -> Entry:
        """Return the enqueue of one layer."""
        if not self._opened.capabilities.shares_one_kernel:
            return self._own_entry(layer)
        most = self._opened.groups_per_unit * self._opened.capabilities.compute_units
        groups = max(1, min(self.launches[layer].units, most))
        return self._layers_entry(layer, layer + 1, groups)

    def segment(self, first: int, last: int) -> Entry:
        """One enqueue for layers [first, last), as many groups as the CPU device has threads."""
        return self._layers_entry(first, last, self._opened.capabilities.compute_units)

    def sequence(self, first: int, last: int) -> Entry:
        """One enqueue for layers [first, last) by one group, which waits for nobody."""
        return self._layers_entry(first, last, 1)

    def _layers_entry(self, first: int, last: int, groups: int) -> Entry:
        assert self._kernels.layers is not None
        kernel = self._cl.Kernel(self._kernels.layers, "run_layers")
        # A kernel gets a single buffer of constants; schedules split the layers where it changes.
        (number,) = set(self.buffers[first:last])
        constants = self.constants[number]
        kernel.set_args(self.arena, constants, *self._tables, np.int32(first), np.int32(last))
        return Entry(kernel, (groups,), (1,), first, last)

    def _own_entry(self, layer: int) -> Entry:
        launch, function = self.launches[layer], self.rows[layer][0]
        kernel = self._cl.Kernel(self._kernels.programs[function], self._kernels.names[function])
        constants = self.constants[self.buffers[layer]]
        kernel.set_args(self.arena, constants, self._tables[0], np.int32(layer))
        return Entry(kernel, launch.global_size, launch.local_size, layer, layer + 1)

    def _batches(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """Yield the entries in the numbers that PoCL's queue may hold; on other drivers all at once."""
        step = _FINISH_EVERY if self._opened.capabilities.is_pocl else len(entries)
        yield from (entries[first : first + step] for first in range(0, len(entries), max(1, step)))

    def enqueue(self, entry: Entry) -> None:
        """Enqueue one entry."""
        self._cl.enqueue_nd_range_kernel(self.queue, entry.kernel, entry.global_size, entry.local_size)

    def timer(self) -> Callable[[Entry], int]:
        """Return a timer on a second queue, whose events carry times. See `backends.base.Recording.timer`."""
        queue = self._timing_queue()

        def timed(entry: Entry) -> int:
            event = self._cl.enqueue_nd_range_kernel(queue, entry.kernel, entry.global_size, entry.local_size)
            event.wait()
            return int(event.profile.end - event.profile.start)

        return timed

    def _timing_queue(self) -> cl.CommandQueue:
        """Create a further queue, whose events carry times, once nothing runs on the own one."""
        # A run on a caller's memory may have left its addresses in the table, and that queue waits for none.
        self._place({})
        self.queue.finish()
        properties = self._cl.command_queue_properties.PROFILING_ENABLE
        return self._cl.CommandQueue(self._opened.context, properties=properties)

    def device_time(self, entries: Sequence[Entry]) -> DeviceTime | NotTold:
        """See `backends.base.Recording.device_time`."""
        queue = self._timing_queue()
        events: list[cl.Event] = []
        for batch in self._batches(entries):
            events.extend(
                self._cl.enqueue_nd_range_kernel(queue, entry.kernel, entry.global_size, entry.local_size)
                for entry in batch
            )
            queue.finish()
        times = [(event.profile.queued, event.profile.start, event.profile.end) for event in events]
        if not times or any(not queued <= start <= end for queued, start, end in times):
            return NotTold(f"the events of {self._opened.capabilities.name} have no times in order")
        queued, began, _ = times[0]
        return DeviceTime(sum(end - start for _, start, end in times), began - queued)

    def run(self, entries: Sequence[Entry]) -> None:
        """Enqueue entries in order and wait for the last."""
        # Back to the arena, which is where `write` has put the inputs.
        self._place({})
        for batch in self._batches(entries):
            event = self._enqueue_all(batch)
            if self.waits_actively:
                OpenClEvent(event).ask()
            self.queue.finish()

    def _enqueue_all(self, entries: Sequence[Entry]) -> cl.Event:
        """Enqueue entries and return the event of the last: the queue keeps the order."""
        queue, enqueue, event = self.queue, self._cl.enqueue_nd_range_kernel, None
        for entry in entries:
            event = enqueue(queue, entry.kernel, entry.global_size, entry.local_size)
        return self._cl.enqueue_marker(queue) if event is None else event

    def _place(self, addresses: dict[int, int]) -> list[cl.Event]:
        """Put these addresses into the table in the place of the arena's; the queue keeps the order."""
        if addresses == self._addresses:
            return []
        table = self._callers.bound_table(addresses)
        self._addresses = addresses
        return [self._cl.enqueue_copy(self.queue, self._tables[0], table, is_blocking=False)]

    def start(
        self,
        entries: Sequence[Entry],
        inputs: tuple[tuple[int, Storage], ...],
        outputs: tuple[tuple[int, Storage], ...],
        after: Sequence[Completion],
        behind: Sequence[Completion],
    ) -> StartedRun:
        """See `backends.base.Recording.start`."""
        # Here, so that runs for whose ends nobody asks do not keep what they used.
        self._settle()
        bound = self._callers.bind(inputs, outputs)
        gates = events_of((*after, *behind), self._opened.context)
        if gates:
            self._cl.enqueue_barrier(self.queue, wait_for=gates)
        # Events of copies are kept: pyopencl waits where one of a copy that is not over is dropped.
        kept = self._place(bound.addresses)
        kept += [self._copy(value, storage, is_output=False) for value, storage in bound.copied_in]
        kept.append(self._enqueue_all(entries))
        kept += [self._copy(value, storage, is_output=True) for value, storage in bound.copied_out]
        flags = self._take_flags(kept)
        # Nobody waits here, and without a flush a driver may hold back what was enqueued.
        self.queue.flush()
        run = OpenClRun(
            # The queue is in order: once the last command has ended, all have.
            kept[-1],
            after,
            partial(self._error_of, flags),
            (inputs, outputs, kept),
            what=f"running the partition on {self._opened.capabilities.name}",
            needs=self.plan.needs,
        )
        run.waits_actively = self.waits_actively
        self._running.append(run)
        return StartedRun(run, bound.reasons)

    def _settle(self) -> None:
        """Let go of the runs that have ended, in their order."""
        while self._running and self._running[0].is_signaled():
            self._running.popleft().settle()

    def _copy(self, value: int, storage: Storage, *, is_output: bool) -> cl.Event:
        """Enqueue the copy of a value between the arena and a caller's memory."""
        size, offset = self._callers.bytes_of(value), self.plan.offsets[value]
        if isinstance(storage, BufferStorage):
            own, foreign = self.arena, storage.buffer
            if is_output:
                return self._cl.enqueue_copy(self.queue, foreign, own, byte_count=size, src_offset=offset)
            return self._cl.enqueue_copy(self.queue, own, foreign, byte_count=size, dst_offset=offset)
        assert isinstance(storage, HostStorage)
        host = storage.memory[:size]
        if is_output:
            return self._cl.enqueue_copy(self.queue, host, self.arena, src_offset=offset, is_blocking=False)
        return self._cl.enqueue_copy(self.queue, self.arena, host, dst_offset=offset, is_blocking=False)

    def _take_flags(self, kept: list[cl.Event]) -> NDArray[np.int32] | None:
        """Enqueue a copy of the checks' flags for this run alone, and clear them for the next."""
        checks = self.plan.checks
        if not checks:
            return None
        flags, none = np.zeros(len(checks) * LINE // 4, np.int32), np.zeros(1, np.int32)
        start = self.plan.checks_offset
        kept.append(self._cl.enqueue_copy(self.queue, flags, self.arena, src_offset=start, is_blocking=False))
        kept.append(self._cl.enqueue_fill_buffer(self.queue, self.arena, none, start, flags.nbytes))
        return flags

    def _error_of(self, flags: NDArray[np.int32] | None) -> InvocationError | None:
        failed = None if flags is None else self._first_failed(flags)
        return None if failed is None else InvocationError(failed)

    @property
    def _reached_memory(self) -> NDArray[np.uint8] | None:
        """The arena on PoCL, whose CPU devices work on the host's memory; None elsewhere."""
        return self._arena_memory if self._opened.capabilities.is_pocl else None

    def _upload(self, offset: int, content: NDArray[Any]) -> None:
        if self._reached_memory is not None:
            self._reached_memory[offset : offset + content.nbytes] = content.reshape(-1).view(np.uint8)
        else:
            self._cl.enqueue_copy(self.queue, self.arena, content, dst_offset=offset, is_blocking=True)

    def _download(self, offset: int, target: NDArray[Any]) -> None:
        if self._reached_memory is not None:
            content = self._reached_memory[offset : offset + target.nbytes]
            target[...] = content.view(target.dtype).reshape(target.shape)
        else:
            self._cl.enqueue_copy(self.queue, target, self.arena, src_offset=offset, is_blocking=True)

    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""
        self.queue.finish()
        self._settle()

    def close(self) -> None:
        """Release buffers, the host memory under them, queue and program; nothing can run any more."""
        if self.is_closed:
            return
        self.is_closed = True
        # A device that has failed has nothing to wait for, and its driver may refuse to release.
        with suppress(self._cl.Error):
            self.finish()
        for buffer in (self.arena, *self.constants, *self._tables):
            with suppress(self._cl.Error):
                buffer.release()
        self._tables = ()
        # After the buffers, since those made with USE_HOST_PTR use this memory until they are released.
        del self.arena, self.constants, self._arena_memory, self.queue, self._kernels
