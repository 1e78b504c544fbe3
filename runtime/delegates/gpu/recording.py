"""A recorded launch list: buffers, kernels with their arguments set once, and the calls that enqueue them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.arena import Arena, Lifetime, assign
from runtime.delegates.gpu.device import OpenedDevice, mapped_errors
from runtime.delegates.gpu.graph import LANES, Graph, round_up
from runtime.delegates.gpu.lowering.spec import (
    Argument,
    Candidate,
    Epilogue,
    Launch,
    PackedConstant,
    Scratch,
)
from runtime.delegates.gpu.program import GPU_ARGUMENTS, TABLE_ROW, Source, function_of
from runtime.delegates.gpu.progress import Announced
from runtime.errors import DelegateError

if TYPE_CHECKING:
    import pyopencl

_SLACK = 64
"""Elements behind the last buffer, so that no vector access leaves the memory: one that starts at the last
element reaches 15 elements further, and four vectors leave room for a kernel that reads ahead."""

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


@dataclass(frozen=True, slots=True)
class Stage:
    """One node's candidate, at the node's position in the graph; the tuner puts several at one position."""

    position: int
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Entry:
    """One enqueue: layers [first, last) of the recording."""

    kernel: pyopencl.Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    first: int
    last: int


BufferKey: TypeAlias = "int | tuple[int, str]"
"""The root value of a buffer, or the number of a stage and the key of its scratch."""


def lifetimes(graph: Graph, stages: Sequence[Stage]) -> dict[BufferKey, Lifetime]:
    """When the graph's buffers and the stages' scratch are in use, by node position; sizes in elements.

    A buffer lives as long as any view of it: inputs from before the first node, outputs to behind the last.
    """
    spans: dict[int, list[int]] = {}
    for position, node in enumerate(graph.nodes):
        for value in (*node.reads, *node.outputs):
            if value in graph.layouts:
                spans.setdefault(graph.layouts[value].root, []).append(position)
    for value in graph.inputs:
        spans.setdefault(graph.layouts[value].root, []).append(-1)
    for value in graph.outputs:
        spans.setdefault(graph.layouts[value].root, []).append(len(graph.nodes))
    found: dict[BufferKey, Lifetime] = {
        root: Lifetime(_extent(graph, root), min(span), max(span)) for root, span in spans.items()
    }
    for number, stage in enumerate(stages):
        for scratch in _scratches(stage.candidate.launches):
            life = Lifetime(scratch.elements, stage.position, stage.position)
            found[number, scratch.key] = life
    return found


def plan_arena(graph: Graph, stages: Sequence[Stage]) -> Arena[BufferKey]:
    """Place all buffers in one arena, in elements; of buffers of one size the one needed first comes first.

    Offsets are multiples of 16 elements, 64 bytes: one vector of the kernels, one cache line.
    """
    lives = lifetimes(graph, stages)
    return assign(dict(sorted(lives.items(), key=lambda item: (item[1].first, item[1].last))), LANES)


def _scratches(launches: Iterable[Launch]) -> list[Scratch]:
    found = {arg.key: arg for launch in launches for arg in launch.args if isinstance(arg, Scratch)}
    return list(found.values())


def _extent(graph: Graph, root: int) -> int:
    """Elements that the buffer of `root` needs."""
    value, layout = graph.values[root], graph.layouts[root]
    return round_up(value.pixels * layout.pixel_stride)


def aligned_empty(elements: int, alignment: int = _PAGE) -> NDArray[np.float32]:
    """Uninitialised float32 memory at an aligned address."""
    raw = np.empty(elements * 4 + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + elements * 4].view(np.float32)


class Recording:
    """Launches bound to memory on a device, ready to be enqueued.

    Keeps a reference to every buffer: OpenCL kernels do not.
    """

    def __init__(
        self,
        opened: OpenedDevice,
        graph: Graph,
        stages: Sequence[Stage],
        source: Source,
        program: pyopencl.Program,
    ) -> None:
        import pyopencl as cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

        self._cl = cl
        self._opened = opened
        self._tables: tuple[pyopencl.Buffer, ...] = ()
        self.is_closed = False
        self._layouts = graph.layouts
        self._constant_offsets: dict[PackedConstant, int] = {}
        self._program = program
        self.launches = [launch for stage in stages for launch in stage.candidate.launches]
        self._owners = [number for number, stage in enumerate(stages) for _ in stage.candidate.launches]
        self._placement = plan_arena(graph, stages)
        with mapped_errors("allocating memory"):
            self.queue = cl.CommandQueue(opened.context)
            self._check_size("activations", self._placement.size)
            self.arena, self._arena_memory = self._allocate(self._placement.size + _SLACK, writable=True)
            self.constants = self._pack()
            self.rows = self._rows(source)
            self.names = [source.names[function_of(launch)] for launch in self.launches]
            self._drop_constants()
            self._bind()

    def _drop_constants(self) -> None:
        """Forget the sources of the packed constants: weights would otherwise be in memory twice."""
        self._constant_offsets = {}
        self.launches = [replace(launch, args=(), epilogue=Epilogue()) for launch in self.launches]

    def _check_size(self, what: str, elements: int) -> None:
        limit = self._opened.capabilities.max_allocation_bytes
        if elements * 4 > limit:
            raise DelegateError(
                f"gpu delegate: the {what} need {elements * 4} bytes in one buffer; "
                f"{self._opened.capabilities.name} allows {limit}"
            )

    def _allocate(
        self, elements: int, *, writable: bool
    ) -> tuple[pyopencl.Buffer, NDArray[np.float32] | None]:
        """A buffer, and on a CPU device the host memory under it, else None; zeros where it is writable.

        Zeros, because padded lanes that no kernel has written must be finite.
        """
        flags = self._cl.mem_flags
        access = flags.READ_WRITE if writable else flags.READ_ONLY
        context = self._opened.context
        if self._opened.capabilities.is_gpu:
            buffer = self._cl.Buffer(context, access, 4 * elements)
            if writable:
                self._cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.float32), 0, 4 * elements)
            return buffer, None
        memory = aligned_empty(elements)
        if writable:
            memory[:] = 0.0
        return self._cl.Buffer(context, access | flags.USE_HOST_PTR, hostbuf=memory), memory

    def _pack(self) -> pyopencl.Buffer:
        """One buffer with every constant; fills `_constant_offsets`."""
        offsets: dict[PackedConstant, int] = {}
        total = 0
        for launch in self.launches:
            for argument in (*launch.args, *launch.epilogue.operands):
                if isinstance(argument, PackedConstant) and argument not in offsets:
                    offsets[argument] = total
                    total += round_up(argument.elements)
        self._check_size("constants", total)
        self._constant_offsets = offsets
        buffer, memory = self._allocate(total + _SLACK, writable=False)
        packed = np.empty(total + _SLACK, np.float32) if memory is None else memory
        for constant, offset in offsets.items():
            packed[offset : offset + constant.elements] = constant.values()
            packed[offset + constant.elements : offset + round_up(constant.elements)] = 0.0
        packed[total:] = 0.0
        if memory is None:
            self._cl.enqueue_copy(self.queue, buffer, packed, is_blocking=True)
        return buffer

    def offset_of(self, value: int) -> int:
        """Offset of a value in the arena, in elements."""
        layout = self._layouts[value]
        return self._placement.offsets[layout.root] + layout.offset

    def _offset(self, argument: Argument, stage: int) -> int:
        if isinstance(argument, PackedConstant):
            return self._constant_offsets[argument]
        if isinstance(argument, Scratch):
            return self._placement.offsets[stage, argument.key]
        return self.offset_of(argument)

    def _rows(self, source: Source) -> list[list[int]]:
        rows = []
        for launch, stage in zip(self.launches, self._owners, strict=True):
            pointers = (*launch.args, *launch.epilogue.operands)
            number = source.numbers[function_of(launch)]
            rows.append([number, *(self._offset(argument, stage) for argument in pointers)])
        return rows

    def _bind(self) -> None:
        if not self._opened.capabilities.shares_one_kernel:
            return
        table = np.zeros((max(len(self.rows), 1), TABLE_ROW), np.int32)
        for row, content in zip(table, self.rows, strict=False):
            row[: len(content)] = content
        flags = self._cl.mem_flags
        context = self._opened.context
        counter = np.zeros(_COUNTER_INTEGERS, np.int32)
        self._tables = (
            self._cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=table),
            self._cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=counter),
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
        kernel = self._cl.Kernel(self._program, "run_layers")
        kernel.set_scalar_arg_dtypes([None, None, None, None, np.int32, np.int32])
        kernel.set_args(self.arena, self.constants, *self._tables, first, last)
        return Entry(kernel, (groups,), (1,), first, last)

    def _own_entry(self, layer: int) -> Entry:
        launch, offsets = self.launches[layer], self.rows[layer][1:]
        if len(offsets) > GPU_ARGUMENTS:
            raise DelegateError(f"gpu delegate: {launch.label} has more than {GPU_ARGUMENTS} buffers")
        kernel = self._cl.Kernel(self._program, f"run_{self.names[layer]}")
        padded = offsets + [0] * (GPU_ARGUMENTS - len(offsets))
        kernel.set_args(self.arena, self.constants, np.array(padded, np.int32))
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

    def profiling_queue(self) -> pyopencl.CommandQueue:
        """A second queue, whose events carry times."""
        properties = self._cl.command_queue_properties.PROFILING_ENABLE
        return self._cl.CommandQueue(self._opened.context, properties=properties)

    def timed(self, entry: Entry, queue: pyopencl.CommandQueue) -> int:
        """Run one entry alone on a profiling queue; nanoseconds from start to end on the device."""
        event = self._cl.enqueue_nd_range_kernel(queue, entry.kernel, entry.global_size, entry.local_size)
        event.wait()
        return int(event.profile.end - event.profile.start)

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

    def _host_view(self, value: int, like: NDArray[Any]) -> NDArray[np.float32] | None:
        """The value's memory itself on PoCL, whose CPU devices work on the host's memory; None elsewhere."""
        if self._arena_memory is None or not self._opened.capabilities.is_pocl:
            return None
        start = self.offset_of(value)
        return self._arena_memory[start : start + like.size].reshape(like.shape)

    def write(self, value: int, content: NDArray[Any]) -> None:
        """Copy a dense host array into a value, before what is enqueued next. Nothing may be running."""
        view = self._host_view(value, content)
        if view is not None:
            view[...] = content
            return
        dense = np.ascontiguousarray(content)
        self._cl.enqueue_copy(
            self.queue, self.arena, dense, dst_offset=4 * self.offset_of(value), is_blocking=True
        )

    def read(self, value: int, target: NDArray[Any]) -> None:
        """Copy a dense value to the host, behind `finish`."""
        view = self._host_view(value, target)
        if view is not None:
            target[...] = view
            return
        dense = target if target.flags.c_contiguous else np.empty(target.shape, np.float32)
        self._cl.enqueue_copy(
            self.queue, dense, self.arena, src_offset=4 * self.offset_of(value), is_blocking=True
        )
        if dense is not target:
            target[...] = dense

    def finish(self) -> None:
        """Wait until everything that was enqueued has run."""
        self.queue.finish()

    def close(self) -> None:
        """Release buffers, the host memory under them, queue and program; nothing can run any more."""
        if self.is_closed:
            return
        self.is_closed = True
        self.queue.finish()
        for buffer in (self.arena, self.constants, *self._tables):
            buffer.release()
        self._tables = ()
        del self.arena, self.constants, self._arena_memory, self.queue, self._program
