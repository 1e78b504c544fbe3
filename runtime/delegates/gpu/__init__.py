"""The GPU delegate: partitions of a model as a recorded list of kernels on one device.

Importing the package gives the descriptor alone: to list `gpu` loads neither numpy nor pyopencl.
"""

from collections.abc import Mapping
from typing import Final

from runtime.common.installation import installed_version
from runtime.delegates.descriptor import (
    INTERFACE,
    INTERPRETER,
    RELEASE,
    DelegateDescriptor,
    HostDevice,
    OptionValue,
)
from runtime.delegates.gpu.settings.options import INTERFACES, campaign_options, settled

__all__ = ["DESCRIPTOR"]

_WRONG_OPERATORS_FACT: Final = "opencl_wrong_operators"
"""The fact of a device that names the operators which a check found to differ from the CPU path there."""

_CUDA_FACT: Final = "cuda_uuid"
"""The fact of a device that has its UUID where CUDA's driver lists it."""


def _environment() -> Mapping[str, str]:
    """Return the binding's version; the driver's fields belong to the device."""
    return {"pyopencl": installed_version("pyopencl") or "not installed"}


def _interfaces(device: HostDevice) -> Mapping[str, Mapping[str, str]]:
    """Return OpenCL first, then CUDA, then those whose adapters the probe found to be this device."""
    found: dict[str, Mapping[str, str]] = {"opencl": {}} if device.api == "opencl" else {}
    if (uuid := device.facts.get(_CUDA_FACT)) is not None:
        fields = {name: device.facts[name] for name in ("cuda_version", "cuda_driver")}
        found["cuda"] = {_CUDA_FACT: uuid, **fields}
    for interface in INTERFACES:
        if (adapter := device.facts.get(f"{interface}_adapter")) is not None:
            found[interface] = {
                "webgpu_adapter": adapter,
                "webgpu_driver": device.facts[f"{interface}_driver"],
                "wgpu": installed_version("wgpu") or "not installed",
            }
    return found


def _device_options(device: HostDevice) -> Mapping[str, OptionValue]:
    """Return CUDA and the UUID, an interface of WebGPU and the adapter's name, or the index that names an
    OpenCL device: two of one host may share everything else.

    A run that is measured has a cache of its own, so that what a check found comes with the device.
    """
    interface = device.facts.get(INTERFACE, "opencl")
    if interface == "cuda":
        return {"backend": interface, "device": device.facts[_CUDA_FACT]}
    if interface != "opencl":
        return {"backend": interface, "device": device.facts[f"{interface}_adapter"]}
    wrong = device.facts.get(_WRONG_OPERATORS_FACT, "")
    return {"device": int(device.facts["opencl_index"])} | ({"excluded_operators": wrong} if wrong else {})


DESCRIPTOR: Final = DelegateDescriptor(
    name="gpu",
    implementation="runtime.delegates.gpu.delegate:GpuDelegate",
    apis=("opencl", "cuda", "webgpu"),
    options=campaign_options(),
    settled=settled,
    device_options=_device_options,
    interfaces=_interfaces,
    environment=_environment,
    executes=(*INTERPRETER, "common/durable.py", "delegates/gpu"),
    packages=("pyopencl",),
    release=RELEASE,
)
