"""`--probe`: the host's CPU and every OpenCL device, with what they can be measured with."""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import TYPE_CHECKING

from agent.devices import ProbeReport
from agent.runner.host import cpu_model, host_environment, host_facts, package_version
from agent.wire.messages import Device, MissingDelegate
from runtime.delegates.litert import INSTALL_LINE, litert_version
from runtime.errors import FarmRuntimeError

if TYPE_CHECKING:
    import pyopencl

HOST_CPU = "host-cpu"
"""Id of the host's CPU, and the exclusion group of everything that runs on it."""

SIDE_BY_SIDE_VARIABLE = "FARM_GPUS_SIDE_BY_SIDE"

_NO_OPENCL = (
    "no OpenCL platform: install a driver of your GPU, or on Debian and Ubuntu "
    "`apt-get install --no-install-recommends pocl-opencl-icd` for OpenCL on the CPU"
)
_PLATFORM_SLUGS = (
    ("portable computing language", "pocl"),
    ("nvidia", "nvidia"),
    ("intel", "intel"),
    ("amd", "amd"),
    ("rusticl", "rusticl"),
)


def probe(*, with_opencl: bool = True) -> ProbeReport:
    """Everything this host offers, and a reason for each delegate kind that it does not."""
    missing = []
    if litert_version() is None:
        missing.append(
            MissingDelegate(kind="litert", reason=f"ai-edge-litert is not installed: {INSTALL_LINE}")
        )
    found: list[Device] = []
    if with_opencl:
        try:
            found, faults = opencl_devices()
        except (FarmRuntimeError, ImportError) as error:
            missing.append(MissingDelegate(kind="gpu", reason=f"{_NO_OPENCL} ({error})"))
        else:
            if not found:
                reason = "; ".join(faults) or _NO_OPENCL
                missing.append(MissingDelegate(kind="gpu", reason=reason))
    return ProbeReport(devices=(host_cpu(), *found), missing=tuple(missing))


def host_cpu() -> Device:
    """The host's CPU."""
    return Device(
        device_id=HOST_CPU,
        kind="cpu",
        api="host",
        name=cpu_model(),
        delegates=("cpu",) if litert_version() is None else ("cpu", "litert"),
        exclusion_group=HOST_CPU,
        environment=host_environment(),
        facts=host_facts(),
    )


def opencl_devices() -> tuple[list[Device], list[str]]:
    """Every OpenCL device of every platform that can be compiled for, and why others cannot.

    Raises `DeviceError`, or `ImportError` without pyopencl.
    """
    from runtime.delegates.opencl.device import list_devices  # noqa: PLC0415  # loads the drivers
    from runtime.delegates.opencl.program import compiler_fault  # noqa: PLC0415  # as above

    seen: Counter[str] = Counter()
    found, faults = [], []
    for index, device in enumerate(list_devices()):
        stem = f"opencl-{platform_slug(device.platform.name)}-{'cpu' if _is_cpu(device) else 'gpu'}"
        fault = compiler_fault(device)
        if fault is None:
            found.append(_describe(device, index, f"{stem}-{seen[stem]}"))
        else:
            faults.append(
                f"the OpenCL driver {device.driver_version.strip()} lists {device.name.strip()} but cannot "
                f"compile for it; install a newer driver ({fault})"
            )
        seen[stem] += 1
    return found, faults


def platform_slug(name: str) -> str:
    """A short stable name of an OpenCL platform: `pocl`, `nvidia`, ..., else its own first words."""
    lowered = name.lower()
    for part, slug in _PLATFORM_SLUGS:
        if part in lowered:
            return slug
    return "-".join(re.findall(r"[a-z0-9]+", lowered)[:3]) or "unnamed"


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


def _describe(device: pyopencl.Device, index: int, device_id: str) -> Device:
    cpu = _is_cpu(device)
    return Device(
        device_id=device_id,
        kind="cpu" if cpu else "gpu",
        api="opencl",
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        delegates=("gpu",),
        exclusion_group=exclusion_group(device_id, cpu=cpu),
        environment={
            **host_environment(),
            "pyopencl": package_version("pyopencl"),
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
        },
    )
