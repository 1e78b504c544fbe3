"""Identifies a device wherever it is listed: by its UUID and its place on the PCI bus, if it has them.

Devices are listed in the loader's order, which a new driver or a restart may change; two GPUs of one kind
share every other property.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyopencl

_UUID: Final = 0x106A
"""CL_DEVICE_UUID_KHR of cl_khr_device_uuid, 16 bytes. pyopencl does not name it."""

_PCI: Final = 0x410F
"""CL_DEVICE_PCI_BUS_INFO_KHR of cl_khr_pci_bus_info: domain, bus, device and function, 4 bytes each."""


def identity(device: pyopencl.Device) -> Mapping[str, str]:
    """Return the fields `opencl_uuid` and `opencl_pci` of a device, each left out if its driver has none."""
    extensions = device.extensions.split()
    found = {}
    if "cl_khr_device_uuid" in extensions and (data := _info(device, _UUID, 16)):
        found["opencl_uuid"] = data.hex()
    place = _pci(device, extensions)
    if place is not None:
        found["opencl_pci"] = place
    return found


def _pci(device: pyopencl.Device, extensions: list[str]) -> str | None:
    if "cl_khr_pci_bus_info" in extensions and (data := _info(device, _PCI, 16)):
        return _place(*struct.unpack("4I", data))
    if "cl_nv_device_attribute_query" in extensions:
        slot = int(device.pci_slot_id_nv)
        # The slot holds device and function, as in a PCI configuration address.
        return _place(int(device.pci_domain_id_nv), int(device.pci_bus_id_nv), slot >> 3, slot & 7)
    if "cl_amd_device_attribute_query" in extensions:
        topology = device.topology_amd
        return _place(0, int(topology.bus) & 0xFF, int(topology.device), int(topology.function))
    return None


def _place(domain: int, bus: int, slot: int, function: int) -> str:
    """`0000:3b:00.0`, as the kernel and NVML write it."""
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _info(device: pyopencl.Device, name: int, size: int) -> bytes | None:
    """Return a property that pyopencl has no name for, None if the driver refuses."""
    import pyopencl._cl  # noqa: PLC0415 - imported on demand: the CPU path must not need it

    buffer = ctypes.create_string_buffer(size)
    # The loader that listed the device: pyopencl's wheels bring their own, and the system may have none.
    ask = ctypes.CDLL(pyopencl._cl.__file__).clGetDeviceInfo
    ask.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
    return None if ask(device.int_ptr, name, size, buffer, None) else buffer.raw
