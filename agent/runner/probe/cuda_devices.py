"""The devices of NVIDIA's CUDA driver, as a further interface to the devices of this host."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.runner.probe.host import exclusion_group, host_environment, host_facts
from agent.wire.messages import Device
from runtime.errors import DelegateError, DeviceError

if TYPE_CHECKING:
    from runtime.delegates.gpu.backends.cuda.device import CudaDevice

CUDA: Final = "cuda"
"""The interface, the `api` of a device that no OpenCL driver lists, and the name under which a host says why
CUDA lists nothing."""

_NODE: Final = Path("/dev/nvidiactl")
"""The node of NVIDIA's driver: a host without it is not asked for CUDA, and lacks nothing."""


def with_cuda(devices: Sequence[Device]) -> tuple[list[Device], list[str]]:
    """Return the devices with the UUIDs of those that CUDA lists too, those that it alone lists, and why it
    lists none. One that OpenCL lists has the same UUID, or the same place on the PCI bus.
    """
    if not _NODE.exists():
        return list(devices), []
    try:
        listed = _listed()
    except (DelegateError, DeviceError) as error:
        return list(devices), [str(error)]
    found = {device.device_id: device for device in devices}
    for number, one in enumerate(listed):
        same = _same(one, list(found.values())) or _new(one, number)
        found[same.device_id] = same.model_copy(update={"facts": same.facts | _facts(one)})
    return list(found.values()), []


def with_cuda_now(device: Device) -> Device:
    """Return the device with its facts as the driver gives them now. Raises `DeviceError` if it is gone."""
    uuid = device.facts.get("cuda_uuid", "")
    one = next((one for one in _listed() if one.uuid == uuid), None)
    if one is None:
        raise DeviceError(
            f"{device.device_id}: CUDA does not list the UUID {uuid} any more; restart the agent"
        )
    return device.model_copy(update={"facts": device.facts | _facts(one)})


def _listed() -> list[CudaDevice]:
    from runtime.delegates.gpu.backends.cuda.device import list_devices  # noqa: PLC0415  # loads the driver

    return list_devices()


def _facts(one: CudaDevice) -> dict[str, str]:
    from runtime.delegates.gpu.backends.cuda.device import (  # noqa: PLC0415  # loads the driver
        driver_version,
        kernel_driver,
    )

    return {"cuda_uuid": one.uuid, "cuda_version": driver_version(), "cuda_driver": kernel_driver()}


def _same(one: CudaDevice, devices: Sequence[Device]) -> Device | None:
    """Return the OpenCL device that is the same silicon, or None."""
    marks = (("opencl_uuid", one.uuid), ("opencl_pci", one.pci))
    return next(
        (d for mark, value in marks for d in devices if value and d.environment.get(mark) == value), None
    )


def _new(one: CudaDevice, number: int) -> Device:
    """Describe a device that no OpenCL driver lists."""
    device_id = f"{CUDA}-gpu-{number}"
    return Device(
        device_id=device_id,
        kind="gpu",
        api="cuda",
        name=one.name,
        vendor="NVIDIA Corporation",
        delegates=(),
        exclusion_group=exclusion_group(device_id, cpu=False),
        environment=host_environment(),
        facts=host_facts(),
    )
