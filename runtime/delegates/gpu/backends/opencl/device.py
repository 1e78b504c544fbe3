"""Chooses, describes and opens an OpenCL device, and turns pyopencl's errors into the runtime's."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from runtime.common.system import usable_cpus
from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.faults import refuse_lost
from runtime.delegates.gpu.backends.opencl.unused_code import release_unused_code
from runtime.delegates.gpu.capabilities import Capabilities, DeviceClass
from runtime.delegates.processor import processor
from runtime.errors import DelegateError, DeviceError

_NO_PLATFORM = (
    "no OpenCL platform was found: install an OpenCL driver (on Debian and Ubuntu the package "
    "pocl-opencl-icd runs OpenCL on the CPU), or check OCL_ICD_VENDORS"
)


GROUPS_PER_UNIT = 4
"""Work-groups for each compute unit, where nothing bounds the threads. One lost 2 to 5 % to imbalance against
two to four (measured with PoCL on two cores); many more only add dispatches."""


@contextmanager
def mapped_errors(what: str) -> Iterator[None]:
    """Run a block of OpenCL calls; a failure becomes `DeviceError` with `what` and the driver's text."""
    try:
        yield
    except cl.Error as error:
        raise DeviceError(f"gpu delegate: {what}: {error}") from error


def list_devices() -> list[cl.Device]:
    """Every OpenCL device of every platform, in the loader's order; its position is the device's index.

    Raises:
        DeviceError: no platform at all, or a driver that fails.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(f"gpu delegate: {_NO_PLATFORM} ({error})") from error
    if not platforms:
        raise DeviceError(f"gpu delegate: {_NO_PLATFORM}")
    with mapped_errors("listing devices"):
        return [device for platform in platforms for device in platform.get_devices()]


def platforms_without_devices() -> list[str]:
    """Names of platforms that list no device. PoCL does so where it can make no folder for its kernels."""
    with mapped_errors("listing platforms"):
        return [platform.name.strip() for platform in cl.get_platforms() if not platform.get_devices()]


def is_gpu(device: cl.Device) -> bool:
    """Return True for anything but a CPU device: such devices get kernels with work-groups."""
    return not device.type & cl.device_type.CPU


def _matches(device: Any, wanted: str) -> bool:
    # The last one tells apart a processor that two drivers list under the same name.
    names = (device.name, device.platform.name, f"{device.platform.name} {device.name}")
    return any(wanted.lower() in name.lower() for name in names)


def choose_device(wanted: str | int | None) -> cl.Device:
    """Return the device that `wanted` names: an index, or a part of its own or its platform's name.

    None chooses the first GPU, or the first device where there is no GPU.

    Raises:
        DeviceError: no OpenCL, no device, or none that fits (the text lists what there is).
    """
    devices = list_devices()
    listing = "; ".join(f"{i}: {d.name.strip()} ({d.platform.name.strip()})" for i, d in enumerate(devices))
    if not devices:
        raise DeviceError(f"gpu delegate: {_NO_PLATFORM} (platforms without devices)")
    if wanted is None:
        return next((device for device in devices if is_gpu(device)), devices[0])
    if isinstance(wanted, int):
        if not 0 <= wanted < len(devices):
            raise DeviceError(f"gpu delegate: there is no OpenCL device {wanted}; there are {listing}")
        return devices[wanted]
    fitting = [device for device in devices if _matches(device, wanted)]
    if not fitting:
        raise DeviceError(f"gpu delegate: no OpenCL device is called {wanted!r}; there are {listing}")
    return fitting[0]


def usable_compute_units(device: cl.Device) -> int:
    """Work-groups that run at the same time.

    PoCL bounds them by its thread pool (`POCL_MAX_PTHREAD_COUNT`) and by this process's CPU affinity.
    """
    units = int(device.max_compute_units)
    if is_gpu(device):
        return units
    units = min(units, len(usable_cpus()))
    limit = os.environ.get("POCL_MAX_PTHREAD_COUNT", "")
    if limit.isdecimal() and int(limit) > 0:
        units = min(units, int(limit))
    return units


def capabilities(device: cl.Device) -> Capabilities:
    """Describe a device as plain data."""
    with mapped_errors("describing the device"):
        return Capabilities(
            name=device.name.strip(),
            vendor=device.vendor.strip(),
            platform=device.platform.name.strip(),
            driver=device.driver_version.strip(),
            version=device.version.strip(),
            is_gpu=is_gpu(device),
            compute_units=usable_compute_units(device),
            vector_floats=int(device.native_vector_width_float),
            max_work_group=int(device.max_work_group_size),
            local_memory_bytes=int(device.local_mem_size),
            max_allocation_bytes=int(device.max_mem_alloc_size),
            memory_bytes=int(device.global_mem_size),
            compiler=device.platform.version.strip(),
            processor="" if is_gpu(device) else " ".join(astuple(processor())),
            device_class=DeviceClass.GPU if is_gpu(device) else DeviceClass.CPU,
        )


def release_unused_code_of(device: cl.Device) -> None:
    """Give back the memory of a CPU driver's compiler, which children run in place of this process."""
    if not is_gpu(device):
        release_unused_code()


def open_context(device: cl.Device) -> cl.Context:
    """Create a context on one device. Raises `DelegateError` if the driver refuses."""
    try:
        return cl.Context([device])
    except cl.Error as error:
        raise DelegateError(f"gpu delegate: no context on {device.name.strip()}: {error}") from error


_CONTEXTS: dict[tuple[int, int], cl.Context] = {}
"""The context of each process and device that was opened. Models share it, since buffers and events of one
context cannot be used in another."""


def shared_context(device: cl.Device) -> cl.Context:
    """Return this process's context on a device. Raises `DelegateError` if the driver refuses."""
    key = (os.getpid(), device.int_ptr)
    if key not in _CONTEXTS:
        _CONTEXTS[key] = open_context(device)
    return _CONTEXTS[key]


@dataclass(frozen=True, slots=True)
class OpenedDevice:
    """A device with its context.

    `groups_per_unit` is the number of work-groups of an enqueued unit function for each compute unit. Several
    even out units of unlike cost; one bounds the threads, as each thread runs one group at a time.
    """

    device: cl.Device
    context: cl.Context
    capabilities: Capabilities
    groups_per_unit: int = GROUPS_PER_UNIT


def open_device(
    wanted: str | int | None,
    threads: int | None = None,
    device_class: str = "auto",
    context: cl.Context | None = None,
) -> OpenedDevice:
    """Choose, describe and open a device; at most `threads` groups at a time on a CPU device.

    `device_class` is that of the option, where "auto" stands for the device's own. A context of the caller's
    own names its one device itself.

    Raises:
        DeviceError, DelegateError: no such device, it was lost before, or the driver refuses.
    """
    device = choose_device(wanted) if context is None else context.devices[0]
    refuse_lost(device)
    # Listing devices has loaded the drivers' libraries; the pages that a context needs are simply read again.
    release_unused_code_of(device)
    found = capabilities(device)
    allowed = bounded(found, threads)
    groups = GROUPS_PER_UNIT if allowed == found else 1
    known = classed(allowed, device_class)
    return OpenedDevice(device, context or shared_context(device), known, groups_per_unit=groups)


def bounded(device: Capabilities, threads: int | None) -> Capabilities:
    """Limit the device to `threads` groups at a time, which only a CPU device can be told."""
    if threads is None or device.is_gpu or threads >= device.compute_units:
        return device
    return replace(device, compute_units=threads)


def classed(device: Capabilities, device_class: str) -> Capabilities:
    """Return the device with the class that the option `device_class` gives it."""
    return device if device_class == "auto" else replace(device, device_class=DeviceClass(device_class))


_UUID: Final = 0x106A
"""CL_DEVICE_UUID_KHR of cl_khr_device_uuid, 16 bytes. pyopencl does not name it."""

_PCI: Final = 0x410F
"""CL_DEVICE_PCI_BUS_INFO_KHR of cl_khr_pci_bus_info: domain, bus, device and function, 4 bytes each."""


def identity(device: cl.Device) -> Mapping[str, str]:
    """Return the fields `opencl_uuid` and `opencl_pci` of a device, each left out if its driver has none."""
    extensions = device.extensions.split()
    found = {}
    if "cl_khr_device_uuid" in extensions and (data := _info(device, _UUID, 16)):
        found["opencl_uuid"] = data.hex()
    place = _pci(device, extensions)
    if place is not None:
        found["opencl_pci"] = place
    return found


def _pci(device: cl.Device, extensions: list[str]) -> str | None:
    if "cl_khr_pci_bus_info" in extensions and (data := _info(device, _PCI, 16)):
        return _place(*struct.unpack("4I", data))
    if "cl_nv_device_attribute_query" in extensions:
        slot = int(device.pci_slot_id_nv)
        # The slot holds device and function, as in a PCI configuration address.
        return _place(int(device.pci_domain_id_nv), int(device.pci_bus_id_nv), slot >> 3, slot & 7)
    if "cl_amd_device_attribute_query" in extensions:
        topology = device.topology_amd
        # The topology of cl_ext.h has no domain, and signed
        # bytes: a bus above 0x7f arrives as a negative number.
        return _place(0, int(topology.bus) & 0xFF, int(topology.device), int(topology.function))
    return None


def _place(domain: int, bus: int, slot: int, function: int) -> str:
    """`0000:3b:00.0`, as the kernel and NVML write it."""
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _info(device: cl.Device, name: int, size: int) -> bytes | None:
    """Return a property that pyopencl has no name for, None if the driver refuses."""
    import pyopencl._cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    buffer = ctypes.create_string_buffer(size)
    # The loader that listed the device: pyopencl's wheels bring their own, and the system may have none.
    ask = ctypes.CDLL(pyopencl._cl.__file__).clGetDeviceInfo
    ask.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    return None if ask(device.int_ptr, name, size, buffer, None) else buffer.raw
