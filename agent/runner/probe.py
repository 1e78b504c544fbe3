"""`--probe`: this host's devices, and on which of them each installed delegate runs or why it does not.

The probe knows no delegate by name: it offers the devices to every registered descriptor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.devices import ProbeReport
from agent.runner.host import HOST_CPU, cpu_model, host_environment, host_facts
from agent.runner.opencl_devices import opencl_devices
from agent.wire.messages import Device, MissingDelegate
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.registry import delegate_descriptor, delegate_names
from runtime.errors import DelegateError, FarmRuntimeError

_NO_OPENCL = (
    "no OpenCL platform: install a driver of your GPU, or on Debian and Ubuntu "
    "`apt-get install --no-install-recommends pocl-opencl-icd` for OpenCL on the CPU"
)


@dataclass(frozen=True, slots=True)
class Hosted:
    """The devices of this host that one delegate runs on, with the environment fields it adds to each.

    `reason`: why there are none; empty where there are some.
    """

    kind: str
    device_ids: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


def probe(*, without_opencl: str | None = None) -> ProbeReport:
    """Return everything this host offers, and a reason for each delegate kind that it does not.

    `without_opencl`: why no OpenCL driver is to be loaded; None lists the OpenCL devices.
    """
    opencl, no_opencl = ([], without_opencl) if without_opencl is not None else _opencl()
    devices = (host_cpu(), *opencl)
    hosted = [hosted_by(name, devices, no_opencl) for name in delegate_names()]
    return ProbeReport(
        devices=tuple(_with_delegates(device, hosted) for device in devices),
        missing=tuple(MissingDelegate(kind=h.kind, reason=h.reason) for h in hosted if h.reason),
    )


def host_cpu() -> Device:
    """The host's CPU, before any delegate is asked."""
    return Device(
        device_id=HOST_CPU,
        kind="cpu",
        api="host",
        name=cpu_model(),
        delegates=(),
        exclusion_group=HOST_CPU,
        environment=host_environment(),
        facts=host_facts(),
    )


def _opencl() -> tuple[list[Device], str]:
    """The OpenCL devices, and why there are none; the reason of a host that has some is not used."""
    try:
        found, faults = opencl_devices()
    except (FarmRuntimeError, ImportError) as error:
        return [], f"{_NO_OPENCL} ({error})"
    return found, "; ".join(faults) or _NO_OPENCL


def hosted_by(kind: str, devices: Sequence[Device], no_opencl: str) -> Hosted:
    """Offer the devices to one delegate. An error in its package excludes only this delegate."""
    try:
        descriptor = delegate_descriptor(kind)
        return _hosted(descriptor, devices, no_opencl)
    except DelegateError as error:
        return Hosted(kind, reason=str(error))
    except Exception as error:  # noqa: BLE001  # a foreign package may raise anything at import
        return Hosted(kind, reason=f"its package fails: {type(error).__name__}: {error}")


def _hosted(descriptor: DelegateDescriptor, devices: Sequence[Device], no_opencl: str) -> Hosted:
    offered = [device for device in devices if device.api in descriptor.apis]
    refusals = {device.device_id: descriptor.hosts(device) for device in offered}
    taken = frozenset(device_id for device_id, why in refusals.items() if why is None)
    if taken:
        return Hosted(descriptor.name, taken, _checked_fields(descriptor, offered))
    reasons = list(dict.fromkeys(why for why in refusals.values() if why is not None))
    if "opencl" in descriptor.apis and not any(device.api == "opencl" for device in devices):
        reasons.append(no_opencl)
    return Hosted(descriptor.name, reason="; ".join(reasons) or "it names no api that a device could have")


def _checked_fields(descriptor: DelegateDescriptor, devices: Iterable[Device]) -> Mapping[str, str]:
    """The delegate's environment fields.

    Raises `DelegateError` for a field that a device has already, which would put its results into series that
    are not its own, and for a field that is not a text.
    """
    fields = dict(descriptor.environment())
    own = {name for device in devices for name in device.environment}
    for name, value in fields.items():
        if name in own:
            raise DelegateError(f"{descriptor.name}: the environment field {name!r} is the device's own")
        if not isinstance(value, str):  # foreign code may break its type annotations
            raise DelegateError(f"{descriptor.name}: the environment field {name!r} must be a text")
    return fields


def _with_delegates(device: Device, hosted: Iterable[Hosted]) -> Device:
    """The device with the delegates that run on it, and their fields in its environment."""
    here = [h for h in hosted if device.device_id in h.device_ids]
    environment = {name: value for h in here for name, value in h.environment.items()}
    return device.model_copy(
        update={
            "delegates": tuple(h.kind for h in here),
            "environment": {**device.environment, **environment},
        }
    )
