"""Reports a measuring process's own device, machine and software."""

import logging

from agent.runner.probe.cuda_devices import CUDA, with_cuda_now
from agent.runner.probe.host import delegate_environment, host_environment
from agent.runner.probe.webgpu_adapters import OPENCL, with_adapter
from agent.wire.messages import INTERFACE_FACT, Device
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DeviceError, FarmRuntimeError

log = logging.getLogger(__name__)


def present_device(device: Device) -> Device:
    """Return the device as this process finds it. Raises `DeviceError` if another one has taken its place."""
    if device.api == "opencl":
        from agent.runner.probe.opencl_devices import found_again  # noqa: PLC0415  # loads the drivers

        present = found_again(device)
    else:
        present = device.model_copy(update={"environment": host_environment()})
    interface = device.facts.get(INTERFACE_FACT, OPENCL)
    if interface == CUDA:
        return with_cuda_now(present)
    return present if interface == OPENCL else with_adapter(present, interface)


def reported_environment(device: Device, kind: str) -> dict[str, str]:
    """Return the environment of this process, which has run a delegate on a device.

    Raises `DeviceError` where that device is not at the index any more at which it was opened.
    """
    present = present_device(device)
    used, found = (which.facts.get("opencl_index") for which in (device, present))
    if used != found:
        raise DeviceError(
            f"{device.device_id} moved from OpenCL device {used} to {found} while it was measured"
        )
    descriptor = delegate_descriptor(kind)
    through = descriptor.interfaces(present).get(present.facts.get(INTERFACE_FACT, ""), {})
    return present.environment | delegate_environment(descriptor) | dict(through)


def environment_of_failed(device: Device, kind: str) -> dict[str, str]:
    """Return the environment of a process that measured nothing; empty if it cannot be determined."""
    try:
        return reported_environment(device, kind)
    except (FarmRuntimeError, OSError) as error:
        log.warning("the environment is not known: %s", error)
        return {}
