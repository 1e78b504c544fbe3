"""`--probe`: this host's devices, and on which of them each installed delegate runs or why it does not.

The probe knows no delegate by name: it offers the devices to every registered descriptor.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.devices import ProbeReport
from agent.runner.probe import host
from agent.runner.probe.cuda_devices import CUDA, with_cuda
from agent.runner.probe.opencl_devices import Trials, opencl_devices
from agent.runner.probe.webgpu_adapters import WEBGPU, listing_adapters, with_adapters
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import Device, MissingDelegate, release_name
from runtime.common.installation import CURRENT, DISTRIBUTION
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.registry import delegate_descriptor, delegate_names
from runtime.errors import DelegateError, FarmRuntimeError

_NO_OPENCL = (
    "no OpenCL platform: install a driver of your GPU, or on Debian and Ubuntu "
    "`apt-get install --no-install-recommends pocl-opencl-icd` for OpenCL on the CPU"
)


@dataclass(frozen=True, slots=True)
class Hosted:
    """The devices of this host that one delegate runs on, with the environment fields of its results there.

    `interfaces`: by device, the interfaces through which it is reached, with the fields that results have
    besides; `releases`: the same of the releases of its package. `reason`: why there are no devices; empty
    where there are some.
    """

    kind: str
    device_ids: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    interfaces: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    releases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reason: str = ""


def probe(
    *,
    without_drivers: str | None = None,
    releases: Sequence[str] = (),
    known: Mapping[str, str] | None = None,
) -> ProbeReport:
    """Return everything this host offers, and a reason for each delegate kind that it does not.

    `without_drivers`: why no driver of OpenCL, CUDA or WebGPU is to be loaded; None lists their devices.
    `releases`: those of packages that are there beside the installed ones. `known`: the findings of the
    report before, which are not made anew.
    """
    trials = Trials(known or {})
    found, no_opencl, no_cuda, no_webgpu = (
        _driven(trials) if without_drivers is None else ([], without_drivers, [], [without_drivers])
    )
    devices = (host_cpu(), *found)
    hosted = [hosted_by(name, devices, no_opencl, releases) for name in delegate_names()]
    missing = [MissingDelegate(kind=h.kind, reason=h.reason) for h in hosted if h.reason]
    return ProbeReport(
        devices=tuple(_with_delegates(device, hosted) for device in devices),
        missing=(
            *missing,
            *(MissingDelegate(kind=CUDA, reason=reason) for reason in no_cuda),
            *(MissingDelegate(kind=WEBGPU, reason=reason) for reason in no_webgpu),
        ),
        findings=trials.found,
    )


def host_cpu() -> Device:
    """Describe the host's CPU, before any delegate is asked."""
    return Device(
        device_id=host.HOST_CPU,
        kind="cpu",
        api="host",
        name=host.cpu_model(),
        delegates=(),
        exclusion_group=HOST_GROUP,
        environment=host.host_environment(),
        facts=host.host_facts(),
    )


def _driven(trials: Trials) -> tuple[list[Device], str, list[str], list[str]]:
    """Return the devices that drivers list, and why there are none of OpenCL, of CUDA, or of WebGPU."""
    with listing_adapters() as adapters:
        found, no_opencl = _opencl(trials)
        found, no_cuda = with_cuda(found)
        found, no_webgpu = with_adapters(found, adapters())
    return found, no_opencl, no_cuda, no_webgpu


def _opencl(trials: Trials) -> tuple[list[Device], str]:
    """Return the OpenCL devices, and why there are none; the reason of a host that has some is not used."""
    try:
        found, faults = opencl_devices(trials)
    except (FarmRuntimeError, ImportError) as error:
        return [], f"{_NO_OPENCL} ({error})"
    return found, "; ".join(faults) or _NO_OPENCL


def hosted_by(kind: str, devices: Sequence[Device], no_opencl: str, releases: Sequence[str] = ()) -> Hosted:
    """Offer the devices to one delegate. An error in its package excludes only this delegate."""
    try:
        descriptor = delegate_descriptor(kind)
        return _hosted(descriptor, devices, no_opencl, releases)
    except DelegateError as error:
        return Hosted(kind, reason=str(error))
    except Exception as error:  # noqa: BLE001  # a foreign package may raise anything at import
        return Hosted(kind, reason=f"its package fails: {type(error).__name__}: {error}")


def _hosted(
    descriptor: DelegateDescriptor, devices: Sequence[Device], no_opencl: str, releases: Sequence[str]
) -> Hosted:
    offered = [device for device in devices if device.api in descriptor.apis]
    refusals = {device.device_id: descriptor.hosts(device) for device in offered}
    taken = frozenset(device_id for device_id, why in refusals.items() if why is None)
    if taken:
        interfaces = {one.device_id: descriptor.interfaces(one) for one in offered if one.device_id in taken}
        own = host.delegate_environment(descriptor)
        return Hosted(descriptor.name, taken, own, interfaces, _releases(descriptor, releases))
    reasons = list(dict.fromkeys(why for why in refusals.values() if why is not None))
    if "opencl" in descriptor.apis and not any(device.api == "opencl" for device in devices):
        reasons.append(no_opencl)
    return Hosted(descriptor.name, reason="; ".join(reasons) or "it names no api that a device could have")


def _releases(descriptor: DelegateDescriptor, releases: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the releases of a delegate's package on this host, the installed one first."""
    if descriptor.release is None:
        return {}
    distribution, field_name = descriptor.release
    parts = (name.partition("@") for name in releases)
    others = [version for its_name, _, version in parts if its_name == distribution]
    if distribution == DISTRIBUTION:
        # The installed commit has the fields of a run that asks for none.
        return {CURRENT: {}} | {build.rpartition("+")[0]: {field_name: build} for build in others}
    return {version: {field_name: version} for version in (host.package_version(distribution), *others)}


def _with_delegates(device: Device, hosted: Iterable[Hosted]) -> Device:
    """Add the delegates that run on the device, and the environment fields of their results."""
    here = [h for h in hosted if device.device_id in h.device_ids]
    environments: dict[str, dict[str, str]] = {}
    for one in here:
        interfaces = one.interfaces.get(device.device_id, {})
        # A descriptor names its default first.
        default = next(iter(interfaces.values()), {})
        environments[one.kind] = {**one.environment, **default}
        environments |= {f"{one.kind}/{name}": {**one.environment, **its} for name, its in interfaces.items()}
        releases = {release_name(one.kind, version): its for version, its in one.releases.items()}
        environments |= {name: {**environments[one.kind], **its} for name, its in releases.items()}
    update = {"delegates": tuple(one.kind for one in here), "delegate_environments": environments}
    return device.model_copy(update=update)
