"""A recorded launch list: buffers, kernels with their arguments set once, and the calls that enqueue them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.base import Entry
from runtime.delegates.gpu.backends.opencl.device import OpenedDevice, mapped_errors
from runtime.delegates.gpu.backends.opencl.library import LoadedKernels
from runtime.delegates.gpu.constants import divide
from runtime.delegates.gpu.graph import LINE, Graph, round_up, without_constants
from runtime.delegates.gpu.lowering.spec import Epilogue, Launch
from runtime.delegates.gpu.memory import Placement, Stage, place, shortage
from runtime.delegates.gpu.packed_file import PackedFiles
from runtime.delegates.gpu.progress import Announced
from runtime.delegates.gpu.source import Source, function_of
from runtime.errors import DelegateError

if TYPE_CHECKING:
    import pyopencl

_SLACK = 256
"""Bytes behind the last buffer, so that no vector access leaves the memory: one that starts at the last
element reaches 15 elements further, 120 bytes of int64, and the rest is for a kernel that reads ahead."""

_FINISH_EVERY = 96
"""Enqueues after which a run waits for the queue. PoCL's cost of an enqueue grows with the length of the
queue: about 4 microseconds in batches of 100, 24 with 1000 queued (measured). Smaller, and waiting costs
more."""

_PAGE = 4096
"""Bytes to which host memory for a device is aligned: drivers use whole pages as they are and copy others."""

_COUNTER_INTEGERS = 64
"""Integers of the barrier's counter, of which the first is used: the others keep the cache lines on which all
threads spin free of other data."""

_POOL = Lock()
"""Held while a persistent segment runs: two of them would wait for each other's threads, which all contexts
share."""


def aligned_empty(size: int, alignment: int = _PAGE) -> NDArray[np.uint8]:
    """Uninitialised memory of `size` bytes at an aligned address."""
    raw = np.empty(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


class OpenClRecording:
    """Launches bound to memory on a device, ready to be enqueued.

    Keeps a reference to every buffer: OpenCL kernels do not.
    """

    def __init__(
        self,
        opened: OpenedDevice,
        graph: Graph,
        stages: Sequence[Stage],
        source: Source,
        program: LoadedKernels,
        files: PackedFiles | None = None,
    ) -> None:
        import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

        self._cl = cl
        self._opened = opened
        self._tables: tuple[pyopencl.Buffer, ...] = ()
        self.is_closed: bool = False
        self._kernels = program
        placement = place(graph, stages, opened.capabilities.max_allocation_bytes)
        if (lack := shortage(placement, opened.capabilities)) is not None:
            raise DelegateError(f"gpu delegate: {lack}")
        self.constant_bytes: int = placement.constant_bytes
        self.buffers: Sequence[int] = placement.constants.chosen
        # Without the constants' sources: weights would otherwise be in memory twice.
        self._placement = replace(
            placement, graph=without_constants(graph), launches=(), constants=divide((), 0)
        )
        self.launches: Sequence[Launch] = tuple(
            replace(launch, args=(), epilogue=Epilogue()) for launch in placement.launches
        )
        self.rows: Sequence[Sequence[int]] = placement.rows(source)
        self.names: Sequence[str] = [source.names[function_of(launch)] for launch in placement.launches]
        with mapped_errors(f"allocating memory on {opened.capabilities.name}"):
            self.queue = cl.CommandQueue(opened.context)
            self.arena, self._arena_memory = self._allocate(placement.arena.size + _SLACK, writable=True)
            self.constants = [
                self._pack(placement, number, files) for number in range(len(placement.constants.sizes))
            ]
            self._bind()

    def _allocate(self, size: int, *, writable: bool) -> tuple[pyopencl.Buffer, NDArray[np.uint8] | None]:
        """A buffer of `size` bytes, and on a CPU device the host memory under it, else None.

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

    def _pack(self, placement: Placement, number: int, files: PackedFiles | None) -> pyopencl.Buffer:
        """One buffer of constants: on a CPU device the mapped file itself, where there is one."""
        mapped = None if files is None else files.constants(placement, number, _SLACK)
        if mapped is not None and not self._opened.capabilities.is_gpu:
            flags = self._cl.mem_flags
            access = flags.READ_ONLY | flags.USE_HOST_PTR
            return self._cl.Buffer(self._opened.context, access, hostbuf=mapped)
        total = placement.constants.sizes[number]
        buffer, memory = self._allocate(total + _SLACK, writable=False)
        if mapped is None:
            content = np.empty(total + _SLACK, np.uint8) if memory is None else memory
            for constant, offset in placement.constants.offsets[number].items():
                end = offset + constant.bytes
                content[offset:end] = constant.values().view(np.uint8)
                content[end : offset + round_up(constant.bytes, LINE)] = 0
            content[total:] = 0
        else:
            content = mapped
        if memory is None:
            self._cl.enqueue_copy(self.queue, buffer, content, is_blocking=True)
        return buffer

    def _bind(self) -> None:
        """Three tables: for each layer the place at which its row begins, the end, then the rows; the
        functions' addresses; the counter of the barrier.
        """
        starts = np.cumsum([len(self.rows) + 1, *map(len, self.rows)])
        table = np.array([*starts, *(number for row in self.rows for number in row)], np.int32)
        flags = self._cl.mem_flags
        context = self._opened.context
        counter = np.zeros(_COUNTER_INTEGERS, np.int32)
        addresses = np.array(self._kernels.addresses or [0], np.uint64)
        self._tables = tuple(
            self._cl.Buffer(context, access | flags.COPY_HOST_PTR, hostbuf=content)
            for access, content in (
                (flags.READ_ONLY, table),
                (flags.READ_ONLY, addresses),
                (flags.READ_WRITE, counter),
            )
        )

    def entry(self, layer: int) -> Entry:
        """The enqueue of one layer."""
        if not self._opened.capabilities.shares_one_kernel:
            return self._own_entry(layer)
        most = self._opened.groups_per_unit * self._opened.capabilities.compute_units
        groups = max(1, min(self.launches[layer].units, most))
        return self._layers_entry(layer, layer + 1, groups)

    def segment(self, first: int, last: int) -> Entry:
        """One enqueue for layers [first, last), as many groups as the CPU device has threads."""
        return self._layers_entry(first, last, self._opened.capabilities.compute_units)

    def _layers_entry(self, first: int, last: int, groups: int) -> Entry:
        assert self._kernels.layers is not None
        kernel = self._cl.Kernel(self._kernels.layers, "run_layers")
        (number,) = set(self.buffers[first:last])
        constants = self.constants[number]
        kernel.set_args(self.arena, constants, *self._tables, np.int32(first), np.int32(last))
        return Entry(kernel, (groups,), (1,), first, last)

    def _own_entry(self, layer: int) -> Entry:
        launch, function = self.launches[layer], self.rows[layer][0]
        kernel = self._cl.Kernel(self._kernels.programs[function], self._kernels.names[function])
        constants = self.constants[self.buffers[layer]]
        kernel.set_args(self.arena, constants, self._tables[0], np.int32(layer))
        if launch.work_size is None:
            return Entry(kernel, (max(1, launch.units),), (1,), layer, layer + 1)
        return Entry(kernel, *launch.work_size, layer, layer + 1)

    def first_runs(self, announcement: Announced) -> None:
        """Run every kernel once, on zeros: drivers other than PoCL compile a kernel when it first runs."""
        seen: dict[str, int] = {}
        for layer, name in enumerate(self.names):
            seen.setdefault(name, layer)
        for number, layer in enumerate(seen.values(), 1):
            announcement.doing = f"compiling kernel {number} of {len(seen)}, {self.names[layer]}"
            self.enqueue(self.entry(layer))
            self.queue.finish()

    def enqueue(self, entry: Entry) -> None:
        """Enqueue one entry."""
        self._cl.enqueue_nd_range_kernel(self.queue, entry.kernel, entry.global_size, entry.local_size)

    def timer(self) -> Callable[[Entry], int]:
        """A second queue, whose events carry times. See `backends.base.Recording.timer`."""
        properties = self._cl.command_queue_properties.PROFILING_ENABLE
        queue = self._cl.CommandQueue(self._opened.context, properties=properties)

        def timed(entry: Entry) -> int:
            event = self._cl.enqueue_nd_range_kernel(queue, entry.kernel, entry.global_size, entry.local_size)
            event.wait()
            return int(event.profile.end - event.profile.start)

        return timed

    def run(self, entries: Sequence[Entry]) -> None:
        """Enqueue entries in order and wait for the last."""
        if any(entry.last - entry.first > 1 for entry in entries):
            with _POOL:
                self._run(entries)
        else:
            self._run(entries)

    def _run(self, entries: Sequence[Entry]) -> None:
        for count, entry in enumerate(entries, 1):
            self.enqueue(entry)
            if count % _FINISH_EVERY == 0:
                self.queue.finish()
        self.queue.finish()

    def _host_view(self, value: int, like: NDArray[Any]) -> NDArray[Any] | None:
        """The value's memory itself on PoCL, whose CPU devices work on the host's memory; None elsewhere."""
        if self._arena_memory is None or not self._opened.capabilities.is_pocl:
            return None
        start = self._placement.offset_of(value)
        return self._arena_memory[start : start + like.nbytes].view(like.dtype).reshape(like.shape)

    def write(self, value: int, content: NDArray[Any]) -> None:
        """Copy a dense host array of the value's type into it. See `backends.base.Recording.write`."""
        view = self._host_view(value, content)
        if view is not None:
            view[...] = content
            return
        dense = np.ascontiguousarray(content)
        self._cl.enqueue_copy(
            self.queue, self.arena, dense, dst_offset=self._placement.offset_of(value), is_blocking=True
        )

    def read(self, value: int, target: NDArray[Any]) -> None:
        """Copy a dense value to a host array of its type, behind `finish`."""
        view = self._host_view(value, target)
        if view is not None:
            target[...] = view
            return
        dense = target if target.flags.c_contiguous else np.empty(target.shape, target.dtype)
        self._cl.enqueue_copy(
            self.queue, dense, self.arena, src_offset=self._placement.offset_of(value), is_blocking=True
        )
        if dense is not target:
            target[...] = dense

    def failed_check(self) -> str | None:
        """Read the checks and clear them. See `backends.base.Recording.failed_check`."""
        checks = self._placement.checks
        if not checks:
            return None
        start, size = self._placement.checks_offset, len(checks) * LINE
        memory = self._arena_memory if self._opened.capabilities.is_pocl else None
        lines = np.empty(size, np.uint8) if memory is None else memory[start : start + size]
        if memory is None:
            self._cl.enqueue_copy(self.queue, lines, self.arena, src_offset=start, is_blocking=True)
        failed = np.flatnonzero(lines.view(np.int32).reshape(len(checks), -1)[:, 0])
        if not failed.size:
            return None
        lines[:] = 0
        if memory is None:
            self._cl.enqueue_copy(self.queue, self.arena, lines, dst_offset=start, is_blocking=True)
        return checks[int(failed[0])].message

    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""
        self.queue.finish()

    def close(self) -> None:
        """Release buffers, the host memory under them, queue and program; nothing can run any more."""
        if self.is_closed:
            return
        self.is_closed = True
        self.queue.finish()
        for buffer in (self.arena, *self.constants, *self._tables):
            buffer.release()
        self._tables = ()
        del self.arena, self.constants, self._arena_memory, self.queue, self._kernels
