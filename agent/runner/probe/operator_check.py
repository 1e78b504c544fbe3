"""`--check`: the operators of the `gpu` delegate against the CPU path, on each OpenCL device of this host."""

from collections.abc import Iterator

from agent.devices import CheckedDevice, CheckReport
from agent.runner.probe.opencl_devices import Trials, opencl_devices
from agent.wire.messages import Device
from runtime.delegates.abilities import Checkable, Conformance
from runtime.delegates.registry import load_delegate
from runtime.errors import DeviceError, FarmRuntimeError
from runtime.tools.operator_check import check_device

_DELEGATE = "gpu"


def check(*, again: bool) -> CheckReport:
    """Check each device whose operators were not checked yet with these kernels, or all of them `again`."""
    try:
        devices = opencl_devices(Trials())[0]
    except (DeviceError, ImportError):
        devices = []  # the probe says why
    return CheckReport(devices=tuple(_checked(devices, again=again)))


def _checked(devices: list[Device], *, again: bool) -> Iterator[CheckedDevice]:
    for device in devices:
        options = {"device": int(device.facts["opencl_index"])}
        try:
            known = None if again else _kept(options)
            found = check_device(_DELEGATE, options) if known is None else known
        except FarmRuntimeError as error:
            yield CheckedDevice(device_id=device.device_id, name=device.name, fault=str(error))
            continue
        yield CheckedDevice(
            device_id=device.device_id,
            name=device.name,
            agreed=len(found.agreed),
            wrong=dict(found.wrong),
            is_new=known is None,
        )


def _kept(options: dict[str, int]) -> Conformance | None:
    delegate = load_delegate(_DELEGATE, options)
    return delegate.conformance() if isinstance(delegate, Checkable) else None
