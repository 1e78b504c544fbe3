"""Chooses, describes and opens a WebGPU adapter, and turns the errors of `wgpu` into the runtime's."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

import wgpu

from runtime.delegates.gpu.capabilities import Capabilities, DeviceClass
from runtime.delegates.gpu.layout.recording_plan import READ_AHEAD
from runtime.errors import DeviceError, DeviceLostError, DeviceMemoryError, FarmRuntimeError

_NO_ADAPTER: Final = (
    "gpu delegate: WebGPU finds no adapter: install a driver of Vulkan, or of OpenGL with EGL (on Debian and "
    "Ubuntu the packages mesa-vulkan-drivers and libvulkan1 run Vulkan on the CPU)"
)

_LIMITS: Final = (
    "max-buffer-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
)
"""Limits that a device is opened with as its adapter has them; unasked, WebGPU gives those of any device."""

ALIGNMENT: Final = 256
"""Bytes to multiples of which the start of a binding is placed: the largest alignment that a device of WebGPU
may ask for. Larger only takes memory."""

_TIMESTAMPS: Final = "timestamp-query"
"""The feature that tells how long a kernel took on the device."""

_COMPUTE_UNITS: Final = 64
"""Compute units that a GPU is taken to have, as WebGPU tells none: the order of magnitude of desktop GPUs.
More makes lowering cut large products into more parts, fewer leaves a large GPU idle."""

_NO_LIMIT: Final = sys.maxsize
"""Bytes of memory, as WebGPU does not tell how much there is: an allocation that fails does."""


@contextmanager
def mapped_errors(what: str) -> Iterator[None]:
    """Run a block of WebGPU calls; a failure becomes `DeviceError` with `what` and the driver's text."""
    try:
        yield
    # Already mapped; caught first because most of them are RuntimeErrors as well.
    except FarmRuntimeError:
        raise
    except (wgpu.GPUError, RuntimeError) as error:
        raise DeviceError(f"gpu delegate: {what}: {in_one_line(error)}") from error


def in_one_line(error: Exception) -> str:
    """Return the text of an error of `wgpu`, which has several lines, in one line."""
    return " ".join(str(error).split())


def list_adapters() -> list[Any]:
    """Every adapter, in the order of `wgpu`. Raises `DeviceError` without one, or as a driver fails."""
    with mapped_errors("listing WebGPU adapters"):
        adapters = list(wgpu.gpu.enumerate_adapters_sync())
    if not adapters:
        raise DeviceError(_NO_ADAPTER)
    return adapters


def interface_of(adapter: Any) -> str:
    """Return the interface of an adapter as the option `backend` names it, such as "vulkan"."""
    return str(adapter.info["backend_type"]).lower()


def choose_adapter(interface: str, wanted: str | int | None) -> Any:
    """Return an interface's adapter, any for "webgpu", by `wanted`: index, name, or a part of its line.

    None chooses the first that is no CPU, or the first.

    Raises:
        DeviceError: no adapter, or none that fits (the text lists what there is).
    """
    listed = list_adapters()
    adapters = [one for one in listed if interface in ("webgpu", interface_of(one))]
    if not adapters:
        there = "; ".join(one.summary for one in listed)
        raise DeviceError(f"gpu delegate: no adapter is reached through {interface}; there are {there}")
    listing = "; ".join(f"{i}: {adapter.summary}" for i, adapter in enumerate(adapters))
    if wanted is None:
        return next((adapter for adapter in adapters if not _is_cpu(adapter)), adapters[0])
    if isinstance(wanted, int):
        if not 0 <= wanted < len(adapters):
            raise DeviceError(f"gpu delegate: there is no WebGPU adapter {wanted}; there are {listing}")
        return adapters[wanted]
    fitting = [adapter for adapter in adapters if wanted.lower() in adapter.summary.lower()]
    if not fitting:
        raise DeviceError(f"gpu delegate: no WebGPU adapter is called {wanted!r}; there are {listing}")
    return fitting[0]


def _window_bytes(adapter: Any) -> int:
    most = int(adapter.limits["max-storage-buffer-binding-size"])
    # A multiple of the alignment, because the next binding of a buffer begins where this one ends.
    return most - most % ALIGNMENT


def _windows(adapter: Any) -> int:
    """Return how many bindings arena and constants may have each, beside the one of the table of rows."""
    return max(1, (int(adapter.limits["max-storage-buffers-per-shader-stage"]) - 1) // 2)


def _is_cpu(adapter: Any) -> bool:
    return bool(adapter.info["adapter_type"] == "CPU")


def described(adapter: Any) -> Capabilities:
    """Describe an adapter as plain data."""
    info, limits = adapter.info, adapter.limits
    return Capabilities(
        name=info["device"],
        vendor=info["vendor"],
        platform=f"WebGPU via {info['backend_type']}",
        driver=info["description"],
        version=f"wgpu {version('wgpu')}",
        is_gpu=not _is_cpu(adapter),
        compute_units=(os.cpu_count() or 1) if _is_cpu(adapter) else _COMPUTE_UNITS,
        vector_floats=1,
        max_work_group=limits["max-compute-invocations-per-workgroup"],
        local_memory_bytes=limits["max-compute-workgroup-storage-size"],
        # Less what every buffer is padded by (`_padded` of recording.py).
        max_allocation_bytes=min(limits["max-buffer-size"], _windows(adapter) * _window_bytes(adapter))
        - READ_AHEAD,
        constants_bytes=min(limits["max-buffer-size"], _window_bytes(adapter)) - READ_AHEAD,
        memory_bytes=_NO_LIMIT,
        device_class=DeviceClass.LANES if _is_cpu(adapter) else DeviceClass.GPU,
        runs_units=False,
    )


@dataclass(slots=True)
class Loss:
    """Why a device is lost; empty while it is not."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class OpenedAdapter:
    """An adapter with its device. `most_groups` is how many work-groups a dimension may have.

    `window_bytes`: how much of a buffer one binding of it shows at most. `loss` is that of the device,
    whatever else is known of it.
    """

    device: Any
    capabilities: Capabilities
    most_groups: int
    has_timestamps: bool
    window_bytes: int
    loss: Loss = field(default_factory=Loss)


def open_adapter(interface: str, wanted: str | int | None) -> OpenedAdapter:
    """Choose, describe and open an adapter. Raises `DeviceError`, also as `choose_adapter` does."""
    adapter = choose_adapter(interface, wanted)
    found = described(adapter)
    has_timestamps = _TIMESTAMPS in adapter.features
    with mapped_errors(f"opening {found.name}"):
        device = adapter.request_device_sync(
            required_features=[_TIMESTAMPS] if has_timestamps else [],
            required_limits={name: adapter.limits[name] for name in _LIMITS},
        )
    most_groups = adapter.limits["max-compute-workgroups-per-dimension"]
    return OpenedAdapter(device, found, most_groups, has_timestamps, _window_bytes(adapter))


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
