"""A recorded launch list on a WebGPU device: pipelines, buffers, and the command buffers that run them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import wgpu
from numpy.typing import NDArray

from runtime.delegates.gpu.backends.base import Entry, Progress, Recording
from runtime.delegates.gpu.backends.webgpu import adapter
from runtime.delegates.gpu.backends.webgpu.wgsl.module import ENTRY, Windows, translate
from runtime.delegates.gpu.graph.graph import ceil_div, round_up
from runtime.delegates.gpu.layout.packed_file import Constants
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD, RecordingPlan
from runtime.delegates.gpu.layout.source import Kernel
from runtime.errors import DelegateError


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The kernels of a partition, and their pipelines by the kernel's number and the bindings of its buffers.

    A pipeline is made when it is first recorded: before, nobody knows how many bindings show its buffers.
    `progress` is told of each.
    """

    opened: adapter.OpenedAdapter
    kernels: Sequence[Kernel]
    progress: Progress
    made: dict[tuple[int, Windows], Any] = field(default_factory=dict)

    def of(self, wanted: Sequence[tuple[int, Windows]]) -> list[Any]:
        """Return pipelines by the numbers of their kernels; translate and compile those that are missing.

        Raises `DelegateError` with what a kernel has outside of the portable subset, or with the driver's
        text.
        """
        missing = [key for key in dict.fromkeys(wanted) if key not in self.made]
        for done, (number, windows) in enumerate(missing):
            self.progress(done, len(missing))
            self.made[number, windows] = _pipeline(self.opened, self.kernels[number], windows)
        return [self.made[key] for key in wanted]


def _pipeline(opened: adapter.OpenedAdapter, kernel: Kernel, windows: Windows) -> Any:
    module = translate(kernel.whole, kernel.name, windows)
    device = opened.device
    size = (*kernel.group, 1, 1)[:3]
    overrides = dict(zip(("local_x", "local_y", "local_z"), size, strict=True))
    try:
        shader = device.create_shader_module(label=kernel.name, code=module.text)
        return device.create_compute_pipeline(
            label=kernel.name,
            layout=device.create_pipeline_layout(bind_group_layouts=[_layout(device, module.writable)]),
            compute={"module": shader, "entry_point": ENTRY, "constants": overrides},
        )
    except wgpu.GPUError as error:
        if not adapter.answers(device):
            # No fault of the kernel's: who asked for it says that the device is lost.
            raise
        raise DelegateError(
            f"gpu delegate: the WebGPU compiler of {opened.capabilities.name} failed in {kernel.name}: "
            f"{adapter.in_one_line(error)}\n{module.text}"
        ) from error


def _layout(device: Any, writable: Sequence[bool]) -> Any:
    """Return the bindings, including those that a kernel does not use: every kernel is bound alike."""
    visibility = wgpu.ShaderStage.COMPUTE
    entries: list[Mapping[str, Any]] = [
        {
            "binding": place,
            "visibility": visibility,
            "buffer": {"type": "storage" if is_writable else "read-only-storage"},
        }
        for place, is_writable in enumerate(writable)
    ]
    return device.create_bind_group_layout(entries=entries)


_WORD: Final = 4
"""Bytes to multiples of which WebGPU copies."""

_VECTOR: Final = 16
"""Bytes of the vectors of which kernels may see a buffer consist. Of a part of one they would see nothing."""

_TIMESTAMPS: Final = 2
"""Timestamps of a timed entry: its beginning and its end, in nanoseconds."""

_TIMESTAMP_BYTES: Final = 8
"""Bytes of a timestamp."""


def _padded(size: int) -> int:
    """Return the bytes of a buffer of values or constants of so many bytes."""
    return round_up(size + READ_AHEAD, _VECTOR)


class WebGpuRecording(Recording):
    """Launches bound to memory on a device, ready to be run."""

    queues_uploads = True

    def __init__(
        self, opened: adapter.OpenedAdapter, plan: RecordingPlan, program: Pipelines, constants: Constants
    ) -> None:
        super().__init__(opened.capabilities, plan, constants)
        self._opened = opened
        self._refuse_many_groups()
        self._pipelines = program.of([(row[0], self._windows(layer)) for layer, row in enumerate(self.rows)])
        with adapter.device_errors("allocating memory", opened, plan.needs):
            self._arena = self._allocate(_padded(plan.arena_bytes))
            self._constants = [self._pack(constants, number) for number in range(len(plan.constant_sizes))]
            self._table, self._offsets = self._tabulated()
            self._groups = [self._bound(layer) for layer in range(len(self.rows))]
            allocated = (self._arena, *self._constants, self._table)
            self.device_bytes = sum(int(buffer.size) for buffer in allocated)

    def _refuse_many_groups(self) -> None:
        for launch, name in zip(self.launches, self.names, strict=True):
            if max(launch.groups) > self._opened.most_groups:
                raise DelegateError(
                    f"gpu delegate: {name} needs {max(launch.groups)} work-groups in one dimension, and "
                    f"{self._opened.capabilities.name} gives {self._opened.most_groups}; use a smaller input"
                )

    def _allocate(self, size: int) -> Any:
        usage = wgpu.BufferUsage
        return self._opened.device.create_buffer(
            size=size, usage=usage.STORAGE | usage.COPY_DST | usage.COPY_SRC
        )

    def _pack(self, constants: Constants, number: int) -> Any:
        """One buffer of constants."""
        buffer = self._allocate(_padded(self.plan.constant_sizes[number]))
        content = constants.mapped(number)
        if content is None:
            content = np.empty(buffer.size, np.uint8)
            constants.fill(number, content)
        self._opened.device.queue.write_buffer(buffer, 0, content)
        return buffer

    def _tabulated(self) -> tuple[Any, list[int]]:
        """Return the rows, each behind the place at which it begins, and the bindings' beginnings."""
        offsets, size = [], 0
        for row in self.rows:
            offsets.append(size)
            size += round_up(_WORD * (len(row) + 1), adapter.ALIGNMENT)
        table = np.zeros(size // _WORD, np.int32)
        for row, offset in zip(self.rows, offsets, strict=True):
            start = offset // _WORD
            # A table of one layer: the index of its row, which follows directly, and the row.
            table[start : start + len(row) + 1] = [1, *row]
        buffer = self._allocate(table.nbytes)
        self._opened.device.queue.write_buffer(buffer, 0, table)
        return buffer, offsets

    def _bound(self, layer: int) -> Any:
        """Return the buffers of a layer's kernel, which sees a table of its own row alone, as layer 0."""
        constants = self._constants[self.buffers[layer]]
        row_bytes = _WORD * (len(self.rows[layer]) + 1)
        resources = (
            *self._shown(self._arena),
            *self._shown(constants),
            {"buffer": self._table, "offset": self._offsets[layer], "size": row_bytes},
        )
        return self._opened.device.create_bind_group(
            layout=self._pipelines[layer].get_bind_group_layout(0),
            entries=[{"binding": place, "resource": one} for place, one in enumerate(resources)],
        )

    def _shown(self, buffer: Any) -> list[dict[str, Any]]:
        """Return the parts of a buffer, each as large as one binding may be."""
        window = self._opened.window_bytes
        return [
            {"buffer": buffer, "offset": start, "size": min(window, buffer.size - start)}
            for start in range(0, buffer.size, window)
        ]

    def _windows(self, layer: int) -> Windows:
        """Return how many bindings show a layer's buffers."""
        window = self._opened.window_bytes
        arena = ceil_div(_padded(self.plan.arena_bytes), window)
        constants = ceil_div(_padded(self.plan.constant_sizes[self.buffers[layer]]), window)
        return Windows(arena, constants, window // _WORD)

    def entry(self, layer: int) -> Entry:
        """Return the run of one layer."""
        launch = self.launches[layer]
        groups = (*launch.groups, 1, 1)[:3]
        kernel = (self._pipelines[layer], self._groups[layer])
        size = launch.instance.work_group.size if launch.instance.work_group else (1,)
        # WebGPU dispatches groups, so they take the place of the global size.
        return Entry(kernel, groups, (*size, 1, 1)[:3], layer, layer + 1)

    def _submit(self, entries: Sequence[Entry], queries: Any = None) -> None:
        """Run entries in order. WebGPU lets each see what those before have stored."""
        encoder = self._opened.device.create_command_encoder()
        writes = None if queries is None else {
            "query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1,
        }  # fmt: skip
        compute = encoder.begin_compute_pass(timestamp_writes=writes)
        for entry in entries:
            pipeline, bound = entry.kernel
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, bound)
            compute.dispatch_workgroups(*entry.global_size)
        compute.end()
        self._opened.device.queue.submit([encoder.finish()])

    def timer(self) -> Callable[[Entry], int]:
        """By timestamps of the device where it has them, else by the host's clock around a run."""
        if not self._opened.has_timestamps:
            return self._host_timed
        device, usage = self._opened.device, wgpu.BufferUsage
        size = _TIMESTAMPS * _TIMESTAMP_BYTES
        queries = device.create_query_set(type="timestamp", count=_TIMESTAMPS)
        resolved = device.create_buffer(size=size, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)

        def timed(entry: Entry) -> int:
            self._submit([entry], queries)
            encoder = device.create_command_encoder()
            encoder.resolve_query_set(queries, 0, _TIMESTAMPS, resolved, 0)
            device.queue.submit([encoder.finish()])
            first, last = np.frombuffer(device.queue.read_buffer(resolved), np.uint64)
            # As ints of Python: unsigned ones of numpy would wrap around below 0.
            return int(last) - int(first)

        return timed

    def _host_timed(self, entry: Entry) -> int:
        start = perf_counter_ns()
        self.run([entry])
        return perf_counter_ns() - start

    def run(self, entries: Sequence[Entry]) -> None:
        """Run entries in order and wait for the last."""
        self._submit(entries)
        self.finish()

    def _upload(self, offset: int, content: NDArray[Any]) -> None:
        """Write at a multiple of a word; up to three zeros follow, within the line of the last byte."""
        flat = content.reshape(-1).view(np.uint8)
        padded = np.pad(flat, (0, -flat.size % _WORD))
        if padded.size:
            self._opened.device.queue.write_buffer(self._arena, offset, padded)

    def _download(self, offset: int, target: NDArray[Any]) -> None:
        if target.nbytes:
            content = self._read(offset, target.nbytes)[: target.nbytes]
            target[...] = content.view(target.dtype).reshape(target.shape)

    def _read(self, offset: int, size: int) -> NDArray[np.uint8]:
        found = self._opened.device.queue.read_buffer(self._arena, offset, round_up(size, _WORD))
        return np.frombuffer(found, np.uint8)

    def finish(self) -> None:
        """Wait until everything that was submitted has run, by a copy, which comes last."""
        self._read(0, _WORD)

    def close(self) -> None:
        """Release buffers and pipelines; nothing can run any more.

        It waits for nothing, as Python may be ending: the thread of `wgpu` that ends a wait does not run any
        more then. A destroyed buffer lives until what was submitted before has run.
        """
        if self.is_closed:
            return
        self.is_closed = True
        for buffer in (self._arena, *self._constants, self._table):
            buffer.destroy()
        self._groups, self._pipelines = [], []
        del self._arena, self._constants, self._table
