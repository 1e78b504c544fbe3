"""Measures what an OpenCL device reaches at best, by the times of its own events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from runtime.common.profile import Peaks
from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import OpenedDevice, mapped_errors
from runtime.delegates.gpu.backends.opencl.program import built
from runtime.delegates.gpu.layout.source import kernel_source

_TRIES: Final = 5
"""Runs of each program; the fastest counts, as a peak is what nothing disturbed."""

_OPERATIONS: Final = 2 * 8
"""Operations of a lane in a round of `compute`: eight multiply-adds."""

_COPIED: Final = 128 * 2**20
"""Bytes of each of the two buffers of `copy`, where the device allows so many: more than its caches hold."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """Lanes of a vector, rounds of `compute`, its work-items for each compute unit, and those of a group.

    Chosen so that the program takes some milliseconds, on a core with vectors of 512 bits as on a compute
    unit of a GPU with a thousand threads.
    """

    lanes: int
    rounds: int
    items_per_unit: int
    group: int


_GPU = _Shape(4, 1 << 11, 1 << 12, 128)


def measure_peaks(opened: OpenedDevice) -> Peaks:
    """Run both programs. Raises `DelegateError` where they do not compile, and `DeviceError`."""
    known = opened.capabilities
    # The compiler warns of wider vectors than a processor has: they are passed in memory. There is no float1.
    shape = _GPU if known.is_gpu else _Shape(max(known.vector_floats, 2), 1 << 16, 4, 1)
    program = built(opened.context, f"#define VECTOR float{shape.lanes}\n{kernel_source('peaks.cl')}")
    items = known.compute_units * shape.items_per_unit
    copied = min(_COPIED, known.max_allocation_bytes, known.memory_bytes // 8)
    # A multiple of 64, the work-items of a group.
    vectors = copied // (4 * shape.lanes) // 256 * 256
    with mapped_errors("measuring the device's peaks"):
        properties = cl.command_queue_properties.PROFILING_ENABLE
        queue = cl.CommandQueue(opened.context, properties=properties)
        flags = cl.mem_flags.READ_WRITE
        out = cl.Buffer(opened.context, flags, 4 * items)
        source, target = (cl.Buffer(opened.context, flags, 4 * shape.lanes * vectors) for _ in range(2))
        cl.enqueue_fill_buffer(queue, source, np.array(0.5, np.float32), 0, 4 * shape.lanes * vectors)
        compute, copy = cl.Kernel(program, "compute"), cl.Kernel(program, "copy")
        compute.set_args(out, np.int32(shape.rounds), np.float32(0.5))
        copy.set_args(source, target)
        computed_ns = _fastest_ns(
            lambda: cl.enqueue_nd_range_kernel(queue, compute, (items,), (shape.group,))
        )
        copied_ns = _fastest_ns(lambda: cl.enqueue_nd_range_kernel(queue, copy, (vectors,), (64,)))
    operations = _OPERATIONS * shape.lanes * shape.rounds * items
    # Per nanosecond, that is, in units of 10^9 per second; the copy counts each byte as read and as written.
    return Peaks(operations / computed_ns, 2 * 4 * shape.lanes * vectors / copied_ns)


def _fastest_ns(enqueue: Callable[[], Any]) -> int:
    """Return the shortest time of an event in nanoseconds."""
    times = []
    for _ in range(_TRIES):
        event = enqueue()
        event.wait()
        times.append(int(event.profile.end - event.profile.start))
    return max(1, min(times))
