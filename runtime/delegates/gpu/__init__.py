"""The GPU delegate: partitions of a model as a recorded list of kernels on one device.

Importing the package gives the descriptor alone: to list `gpu` loads neither numpy nor pyopencl.
"""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from runtime.delegates.descriptor import INTERPRETER, DelegateDescriptor, HostDevice, OptionValue
from runtime.delegates.gpu.settings.options import campaign_options

__all__ = ["DESCRIPTOR"]

_WRONG_OPERATORS_FACT: Final = "opencl_wrong_operators"
"""The fact of a device that names the operators which a check found to differ from the CPU path there."""


def _environment() -> Mapping[str, str]:
    """Return the binding's version. The driver's fields belong to the device, whichever delegate runs
    there.
    """
    try:
        return {"pyopencl": version("pyopencl")}
    except PackageNotFoundError:
        return {"pyopencl": "not installed"}


def _device_options(device: HostDevice) -> Mapping[str, OptionValue]:
    """Return the index that names the device: two devices of one host may share everything else.

    A run that is measured has a cache of its own, so that what a check found comes with the device.
    """
    wrong = device.facts.get(_WRONG_OPERATORS_FACT, "")
    return {"device": int(device.facts["opencl_index"])} | ({"excluded_operators": wrong} if wrong else {})


DESCRIPTOR: Final = DelegateDescriptor(
    name="gpu",
    implementation="runtime.delegates.gpu.delegate:GpuDelegate",
    apis=("opencl",),
    options=campaign_options(),
    device_options=_device_options,
    environment=_environment,
    executes=(*INTERPRETER, "common/durable.py", "common/installation.py", "delegates/gpu"),
    packages=("pyopencl",),
)
