"""Assumed devices for plans without a real one: one of each class, the same on every machine."""

from typing import Final

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.capabilities import DeviceClass as Kernels
from runtime.delegates.plan import DeviceClass

THREADS_PER_UNIT: Final = 2048
"""Work-items that a multiprocessor of NVIDIA's data-centre GPUs holds at the same time (CUDA C++ Programming
Guide, table of compute capabilities 8.0 and 9.0). Larger makes launches fill less of it."""

_GIB: Final = 1 << 30
"""Bytes of a gibibyte, by definition."""

_CPU_UNITS: Final = 8
"""Compute units of the assumed CPU, a common desktop's cores. The option `threads` lowers it; larger divides
the work into more tiles."""

_H200_UNITS: Final = 132
"""Multiprocessors of an H200 (NVIDIA H200 data sheet). With fewer, fewer work-items fill the device."""

ASSUMED: Final[dict[DeviceClass, Capabilities]] = {
    "cpu": Capabilities(
        name="x86-64 with AVX-512 under PoCL",
        vendor="",
        platform="Portable Computing Language",
        driver="",
        version="",
        is_gpu=False,
        compute_units=_CPU_UNITS,
        vector_floats=16,
        max_work_group=4096,
        local_memory_bytes=512 << 10,
        max_allocation_bytes=16 * _GIB,
        memory_bytes=16 * _GIB,
        shares_one_kernel=True,
    ),
    "gpu": Capabilities(
        name="NVIDIA H200",
        vendor="NVIDIA Corporation",
        platform="NVIDIA CUDA",
        driver="",
        version="",
        is_gpu=True,
        compute_units=_H200_UNITS,
        vector_floats=1,
        max_work_group=1024,
        local_memory_bytes=48 << 10,
        max_allocation_bytes=139 * _GIB // 4,
        memory_bytes=139 * _GIB,
        device_class=Kernels.GPU,
    ),
}
"""What a device of a class is taken for: sizes in bytes, of data sheets and of what OpenCL drivers report."""


def resident_threads(device: Capabilities) -> int:
    """Work-items that a device holds at the same time; 0 where nothing tells it."""
    return device.compute_units * THREADS_PER_UNIT if "nvidia" in device.vendor.lower() else 0
