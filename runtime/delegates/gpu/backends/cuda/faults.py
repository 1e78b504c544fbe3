"""Converts CUDA's errors to the runtime's, such as a lost device or full memory.

An error of a kernel voids the primary context, and with it everything that this process has on the device.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.delegates.gpu.backends.cuda.device import OpenedDevice
from runtime.delegates.gpu.backends.cuda.driver import CONSTANTS, CudaError
from runtime.errors import DeviceError, DeviceLostError, DeviceMemoryError

_LOSSES: Final = frozenset(
    CONSTANTS[f"CUDA_ERROR_{name}"]
    for name in (
        "DEVICE_UNAVAILABLE", "ECC_UNCORRECTABLE", "NVLINK_UNCORRECTABLE", "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT", "CONTEXT_IS_DESTROYED", "ASSERT", "HARDWARE_STACK_ERROR", "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC", "LAUNCH_FAILED",
    )
)  # fmt: skip
"""Errors behind which `cuda.h` lets no further work be launched in the process."""

_REMEDY: Final = "start a new process, and look for the cause in the driver's log"

# By process, because a child of fork inherits the table, and not the loss.
_lost: Final[dict[tuple[int, str], str]] = {}
"""Why a device is lost, by process and UUID."""


@contextmanager
def device_errors(what: str, opened: OpenedDevice, needs: str = "") -> Iterator[None]:
    """Run a block in the device's context; a failure becomes `DeviceError` with `what` and the driver's text.

    `needs` says in a message about memory how much is needed.

    Raises:
        DeviceLostError: the device is lost to this process, or was lost before.
        DeviceMemoryError: the device has no memory left.
        DeviceError: anything else.
    """
    name, key = opened.capabilities.name, (os.getpid(), opened.device.uuid)
    if key in _lost:
        raise DeviceLostError(f"gpu delegate: {name} was lost in this process ({_lost[key]}); {_REMEDY}")
    try:
        with opened.current():
            yield
    except CudaError as error:
        raise device_error(error, f"{what} on {name}", opened, needs) from error


def device_error(error: CudaError, what: str, opened: OpenedDevice, needs: str = "") -> DeviceError:
    """Convert an error of `what`; a device that is lost by it is remembered."""
    if error.code in _LOSSES:
        _lost.setdefault((os.getpid(), opened.device.uuid), f"{what}: {error}")
        return DeviceLostError(f"gpu delegate: {what}: the device is lost ({error}); {_REMEDY}")
    if error.code == CONSTANTS["CUDA_ERROR_OUT_OF_MEMORY"]:
        size = f"; {needs}" if needs else ""
        remedy = "close what else uses the device, or choose a smaller input or another device"
        return DeviceMemoryError(
            f"gpu delegate: {what}: the device has no memory left ({error}){size}; {remedy}"
        )
    return DeviceError(f"gpu delegate: {what}: {error}")
