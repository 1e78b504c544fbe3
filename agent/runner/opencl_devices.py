"""The OpenCL devices of this host, as the drivers list them and as their compilers prove them."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from agent.runner.host import HOST_CPU, host_environment, host_facts
from agent.wire.messages import FIRST_KERNEL_FACT, NARROW_NUMBERS_FACT, Device

if TYPE_CHECKING:
    import pyopencl

SIDE_BY_SIDE_VARIABLE: Final = "FARM_GPUS_SIDE_BY_SIDE"

_PLATFORM_SLUGS = (
    ("portable computing language", "pocl"),
    ("nvidia", "nvidia"),
    ("intel", "intel"),
    ("amd", "amd"),
    ("rusticl", "rusticl"),
)

_SLUG_WORDS = 3
"""How many words of an unknown platform's name its devices' ids carry. Chosen: enough to tell vendors apart,
short enough to type. A change renames devices, which starts new series."""


def opencl_devices() -> tuple[list[Device], list[str]]:
    """Every OpenCL device of every platform that can be compiled for, and why others cannot.

    The devices' `delegates` are empty. Raises `DeviceError`, or `ImportError` without pyopencl.
    """
    from runtime.delegates.gpu.backends.opencl.device import list_devices  # noqa: PLC0415  # loads the drivers
    from runtime.delegates.gpu.backends.opencl.program import probe_compiler  # noqa: PLC0415  # as above

    seen: Counter[str] = Counter()
    found, faults = [], []
    for index, device in enumerate(list_devices()):
        stem = f"opencl-{platform_slug(device.platform.name)}-{'cpu' if _is_cpu(device) else 'gpu'}"
        compiler = probe_compiler(device)
        if compiler.fault is None:
            found.append(_describe(device, index, f"{stem}-{seen[stem]}", compiler.seconds))
        else:
            faults.append(
                f"the OpenCL driver {device.driver_version.strip()} lists {device.name.strip()} but cannot "
                f"compile for it; install a newer driver ({compiler.fault})"
            )
        # A device without a compiler is counted too: its neighbours keep their ids once it is repaired.
        seen[stem] += 1
    return found, faults


def platform_slug(name: str) -> str:
    """A short stable name of an OpenCL platform: `pocl`, `nvidia`, ..., else its own first words."""
    lowered = name.lower()
    for part, slug in _PLATFORM_SLUGS:
        if part in lowered:
            return slug
    return "-".join(re.findall(r"[a-z0-9]+", lowered)[:_SLUG_WORDS]) or "unnamed"


def exclusion_group(device_id: str, *, cpu: bool) -> str:
    """What must not run beside a device: everything on its host, or only the CPU where the operator lets GPUs
    be measured side by side (`FARM_GPUS_SIDE_BY_SIDE=1`).
    """
    if cpu or os.environ.get(SIDE_BY_SIDE_VARIABLE) != "1":
        return HOST_CPU
    return f"{HOST_CPU}/{device_id}"


def _is_cpu(device: pyopencl.Device) -> bool:
    import pyopencl  # noqa: PLC0415  # loaded by `list_devices`

    return bool(device.type & pyopencl.device_type.CPU)


def _narrow_numbers(device: pyopencl.Device) -> str:
    """What a probe found that the device does with fp16 and bfloat16; kept in the delegate's cache."""
    from runtime.delegates.gpu.backends.opencl.device import capabilities  # noqa: PLC0415  # loads the drivers
    from runtime.delegates.gpu.backends.opencl.precision_probe import probe_precision  # noqa: PLC0415  # as above
    from runtime.delegates.gpu.cache import cache_folder, open_cache  # noqa: PLC0415  # as above

    folder = cache_folder(None, dict(os.environ))
    return str(probe_precision(device, capabilities(device), open_cache(folder)).able)


def _describe(device: pyopencl.Device, index: int, device_id: str, compile_seconds: float) -> Device:
    cpu = _is_cpu(device)
    return Device(
        device_id=device_id,
        kind="cpu" if cpu else "gpu",
        api="opencl",
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        delegates=(),
        exclusion_group=exclusion_group(device_id, cpu=cpu),
        environment={
            **host_environment(),
            "opencl_platform": device.platform.name.strip(),
            "opencl_platform_version": device.platform.version.strip(),
            "opencl_device": device.name.strip(),
            "opencl_device_version": device.version.strip(),
            "opencl_driver": device.driver_version.strip(),
        },
        facts={
            **host_facts(),
            "opencl_index": str(index),
            "opencl_compute_units": str(device.max_compute_units),
            "opencl_clock_mhz": str(device.max_clock_frequency),
            "opencl_memory_bytes": str(device.global_mem_size),
            "opencl_timer_resolution_ns": str(device.profiling_timer_resolution),
            FIRST_KERNEL_FACT: f"{compile_seconds:.2f}",
            NARROW_NUMBERS_FACT: _narrow_numbers(device),
        },
    )
