"""Converts WebGPU's errors to the runtime's, such as a lost device or full memory.

A lost device stays lost for the delegate that opened it; WebGPU gives another one a device of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import wgpu

from runtime.delegates.gpu.backends.webgpu.adapter import OpenedAdapter, in_one_line
from runtime.errors import DeviceError, DeviceLostError, DeviceMemoryError, FarmRuntimeError

_PROBE_BYTES: Final = 64
"""Size of the transfer that shows whether a device still answers. Any multiple of a word: it moves no data
worth mentioning."""

_REMEDY: Final = "load the delegate anew or start a new process, and look for the cause in the driver's log"


@contextmanager
def device_errors(what: str, opened: OpenedAdapter, needs: str = "") -> Iterator[None]:
    """Run a block of WebGPU calls on a device; a failure becomes a `DeviceError` with `what`.

    `needs` says in a message about memory how much is needed.

    Raises:
        DeviceLostError: the device is lost, or was lost before.
        DeviceMemoryError: the device has no memory left.
        DeviceError: anything else, with the driver's text.
    """
    name = opened.capabilities.name
    if opened.loss.why:
        raise DeviceLostError(f"gpu delegate: the delegate has lost {name} ({opened.loss.why}); {_REMEDY}")
    try:
        yield
    except FarmRuntimeError:
        raise
    except (wgpu.GPUError, RuntimeError) as error:
        raise _mapped(error, f"{what} on {name}", opened, needs) from error


def _mapped(error: Exception, what: str, opened: OpenedAdapter, needs: str) -> DeviceError:
    text = in_one_line(error)
    if not answers(opened.device):
        opened.loss.why = f"{what}: {text}"
        return DeviceLostError(f"gpu delegate: {what}: the device is lost ({text}); {_REMEDY}")
    if isinstance(error, wgpu.GPUOutOfMemoryError):
        size = f"; {needs}" if needs else ""
        remedy = "close what else uses the device, or choose a smaller input or another device"
        return DeviceMemoryError(
            f"gpu delegate: {what}: the device has no memory left ({text}){size}; {remedy}"
        )
    return DeviceError(f"gpu delegate: {what}: {text}")


def answers(device: Any) -> bool:
    """Whether the smallest transfer from a device still works."""
    try:
        buffer = device.create_buffer(size=_PROBE_BYTES, usage=wgpu.BufferUsage.COPY_SRC)
        device.queue.read_buffer(buffer)
        buffer.destroy()
    except (wgpu.GPUError, RuntimeError):
        return False
    return True
