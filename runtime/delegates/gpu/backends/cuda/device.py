"""Chooses, describes and opens a CUDA device."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from runtime.delegates.gpu.backends.cuda.driver import CONSTANTS, CudaError, Driver, driver
from runtime.delegates.gpu.capabilities import Capabilities, DeviceClass
from runtime.errors import DeviceError

_NAME_BYTES: Final = 256
"""Room for a device's name; the longest that is known has less than a quarter of it."""

_CONTEXTS: Final[dict[tuple[int, str], int]] = {}
"""The primary context of each process and device that was opened; all models of a process share it."""

_MODES: Final = {
    CONSTANTS["CU_COMPUTEMODE_PROHIBITED"]: "Prohibited",
    CONSTANTS["CU_COMPUTEMODE_EXCLUSIVE_PROCESS"]: "Exclusive_Process, in which one process at a time has it",
}
"""Compute modes that refuse a context, in the words of nvidia-smi."""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A device as the driver lists it: `uuid` in 32 hex digits, `pci` as the kernel writes it, `target` its
    compute capability, such as (9, 0).
    """

    ordinal: int
    name: str
    uuid: str
    pci: str
    target: tuple[int, int]
    mode: int


@dataclass(frozen=True, slots=True)
class OpenedDevice:
    """A device with its primary context."""

    device: CudaDevice
    context: int
    capabilities: Capabilities

    @contextmanager
    def current(self) -> Iterator[Driver]:
        """Make the context that of the calling thread for the time of a block; callers may have their own."""
        cuda = driver()
        cuda.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield cuda
        finally:
            # A context that an error has voided may refuse to be taken away, and the error is on its way.
            with suppress(CudaError):
                cuda.handle("cuCtxPopCurrent_v2")


def list_devices() -> list[CudaDevice]:
    """Return every CUDA device, in the driver's order. Raises `DelegateError` without a driver, `DeviceError`
    where it fails or lists none.
    """
    cuda = driver()
    try:
        found = [_described(cuda, number) for number in range(cuda.handle("cuDeviceGetCount"))]
    except CudaError as error:
        raise DeviceError(f"gpu delegate: listing CUDA devices: {error}") from error
    if not found:
        raise DeviceError("gpu delegate: NVIDIA's driver lists no device; look at CUDA_VISIBLE_DEVICES")
    return found


def _described(cuda: Driver, number: int) -> CudaDevice:
    ordinal = cuda.handle("cuDeviceGet", number)
    name, uuid = ctypes.create_string_buffer(_NAME_BYTES), (ctypes.c_ubyte * 16)()
    cuda.call("cuDeviceGetName", name, _NAME_BYTES, ordinal)
    cuda.call("cuDeviceGetUuid_v2", ctypes.byref(uuid), ordinal)
    domain, bus, slot = (cuda.attribute(ordinal, f"PCI_{part}_ID") for part in ("DOMAIN", "BUS", "DEVICE"))
    return CudaDevice(
        ordinal,
        name.value.decode(errors="replace").strip(),
        bytes(uuid).hex(),
        # CUDA does not report the PCI function; a GPU is function 0 of its slot.
        f"{domain:04x}:{bus:02x}:{slot:02x}.0",
        (
            cuda.attribute(ordinal, "COMPUTE_CAPABILITY_MAJOR"),
            cuda.attribute(ordinal, "COMPUTE_CAPABILITY_MINOR"),
        ),
        cuda.attribute(ordinal, "COMPUTE_MODE"),
    )


def choose_device(wanted: str | int | None, devices: list[CudaDevice]) -> CudaDevice:
    """Return the device that `wanted` names: an index, a UUID (with `GPU-` and dashes, or without), or a part
    of its name; None chooses the first. Raises `DeviceError` with what there is.
    """
    listing = "; ".join(f"{i}: {one.name} ({one.uuid})" for i, one in enumerate(devices))
    if wanted is None:
        return devices[0]
    if isinstance(wanted, int):
        if not 0 <= wanted < len(devices):
            raise DeviceError(f"gpu delegate: there is no CUDA device {wanted}; there are {listing}")
        return devices[wanted]
    plain = wanted.lower()
    uuid = plain.removeprefix("gpu-").removeprefix("mig-").replace("-", "")
    fitting = [one for one in devices if one.uuid == uuid or plain in one.name.lower()]
    if not fitting:
        raise DeviceError(f"gpu delegate: no CUDA device is called {wanted!r}; there are {listing}")
    return fitting[0]


def driver_version() -> str:
    """Return the newest CUDA that the driver serves, such as 12.8."""
    number = driver().handle("cuDriverGetVersion")
    return f"{number // 1000}.{number % 1000 // 10}"


def kernel_driver() -> str:
    """Return the version of the kernel's part of the driver, such as 570.86.15; empty where it tells none."""
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:  # noqa: PTH123  # one line of sysfs
            return file.read().strip()
    except OSError:
        return ""


def capabilities(device: CudaDevice) -> Capabilities:
    """Describe a device as plain data. Raises `DeviceError`."""
    cuda = driver()
    try:
        memory = cuda.handle("cuDeviceTotalMem_v2", device.ordinal)
        return Capabilities(
            name=device.name,
            vendor="NVIDIA Corporation",
            platform="CUDA",
            driver=kernel_driver(),
            version=f"CUDA {driver_version()}, sm_{device.target[0]}{device.target[1]}",
            is_gpu=True,
            compute_units=cuda.attribute(device.ordinal, "MULTIPROCESSOR_COUNT"),
            vector_floats=1,
            max_work_group=cuda.attribute(device.ordinal, "MAX_THREADS_PER_BLOCK"),
            # What a launch may request, which is more than a kernel may declare (`STATIC_BYTES` of ptx.py).
            local_memory_bytes=cuda.attribute(device.ordinal, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            max_allocation_bytes=memory,
            memory_bytes=memory,
            device_class=DeviceClass.GPU,
        )
    except CudaError as error:
        raise DeviceError(f"gpu delegate: describing {device.name}: {error}") from error


def open_device(wanted: str | int | None) -> OpenedDevice:
    """Choose and describe a device, and retain its primary context, once in a process.

    Raises `DelegateError` without a driver; `DeviceError`: no such device, or its compute mode refuses.
    """
    device = choose_device(wanted, list_devices())
    described = capabilities(device)
    key = os.getpid(), device.uuid
    if key not in _CONTEXTS:
        try:
            _CONTEXTS[key] = driver().handle("cuDevicePrimaryCtxRetain", device.ordinal)
        except CudaError as error:
            mode = _MODES.get(device.mode)
            why = f"; its compute mode is {mode}: `nvidia-smi -c DEFAULT` opens it to all" if mode else ""
            raise DeviceError(f"gpu delegate: no context on {device.name}: {error}{why}") from error
    return OpenedDevice(device, _CONTEXTS[key], described)
