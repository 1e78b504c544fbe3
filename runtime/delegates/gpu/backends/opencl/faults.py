"""Converts OpenCL's errors to the runtime's, such as a lost device or full memory.

A lost device stays lost for the process, whose contexts on it are void. Other processes are not concerned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.delegates.gpu.backends.opencl import cl
from runtime.errors import DeviceError, DeviceLostError, DeviceMemoryError

DEVICE_NOT_AVAILABLE: Final = -2
"""OpenCL's error of a device that is gone (CL_DEVICE_NOT_AVAILABLE of cl.h)."""

_SUSPECT: Final = {-5, -14, -34, -36, -9999}
"""Errors behind which a lost device may stand, of cl.h: CL_OUT_OF_RESOURCES, a failed event that was waited
for, an invalid context, an invalid queue, and NVIDIA's number of a kernel that accessed memory it must not.
Whether it is lost, the smallest transfer tells."""

_FULL: Final = {-4, -6}
"""CL_MEM_OBJECT_ALLOCATION_FAILURE and CL_OUT_OF_HOST_MEMORY of cl.h."""

_PROBE_BYTES: Final = 64
"""Size of the transfer that shows whether a device still answers. Any: it moves no data worth mentioning."""

_lost: Final[dict[tuple[int, int], str]] = {}
"""Why a device is lost, by process and device: a fork has contexts of its own."""


@contextmanager
def device_errors(what: str, context: cl.Context, needs: str = "") -> Iterator[None]:
    """Run a block of OpenCL calls on a context's device; a failure becomes what `device_error` makes of it.

    Raises:
        DeviceLostError: the device is lost, or was lost before.
        DeviceMemoryError: the device has no memory left.
        DeviceError: anything else, with the driver's text.
    """
    refuse_lost(context.devices[0])
    try:
        yield
    except cl.Error as error:
        raise device_error(code_of(error), str(error), what, context, needs) from error


def refuse_lost(device: cl.Device) -> None:
    """Raise `DeviceLostError` for a device that this process has lost."""
    why = _lost.get((os.getpid(), device.int_ptr))
    if why is not None:
        raise DeviceLostError(
            f"gpu delegate: {device.name.strip()} was lost in this process ({why}); {_REMEDY}"
        )


_REMEDY: Final = "start a new process, and look for the cause in the driver's log"


def device_error(code: int | None, text: str, what: str, context: cl.Context, needs: str = "") -> DeviceError:
    """Convert OpenCL's error `code`, with its words `text`, into an error of `what` on a context's device.

    `needs` says in a message about memory how much is needed. A device that is found lost is marked so.
    """
    device = context.devices[0]
    if code == DEVICE_NOT_AVAILABLE or (code in _SUSPECT and not _answers(context)):
        # Keeps the first error, which is the cause; later ones only follow from it.
        _lost.setdefault((os.getpid(), device.int_ptr), f"{what}: {text}")
        return DeviceLostError(f"gpu delegate: {what}: the device is lost ({text}); {_REMEDY}")
    if code in _FULL:
        size = f"; {needs}" if needs else ""
        remedy = "close what else uses the device, or choose a smaller input or another device"
        return DeviceMemoryError(
            f"gpu delegate: {what}: the device has no memory left ({text}){size}; {remedy}"
        )
    return DeviceError(f"gpu delegate: {what}: {text}")


def code_of(error: cl.Error) -> int | None:
    """OpenCL's number of an error; None where it has none."""
    try:
        return int(error.code)
    except AttributeError:  # of an error that pyopencl raised by itself
        return None


def _answers(context: cl.Context) -> bool:
    """Whether the smallest transfer in the context still works."""
    import numpy as np  # noqa: PLC0415 - with pyopencl

    try:
        queue = cl.CommandQueue(context)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, _PROBE_BYTES)
        cl.enqueue_fill_buffer(queue, buffer, np.zeros(1, np.uint8), 0, _PROBE_BYTES)
        queue.finish()
    except cl.Error:
        return False
    return True
