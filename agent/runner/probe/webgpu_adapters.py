"""The adapters of WebGPU, as further interfaces to the devices of this host.

All are listed by a process of their own, beside the one that loads the drivers of OpenCL: a driver that
crashes or hangs costs the adapters alone, and neither waits for the other.
"""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final, Literal

from pydantic import Field

from agent.devices import RUNNER_COMMAND
from agent.processes.environment import for_runner
from agent.processes.exit_reason import told
from agent.runner.probe.host import cpu_model, host_environment, host_facts
from agent.wire.bounded import MAX_DEVICES, Text, Wire
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import Device
from runtime.common.installation import install_command
from runtime.errors import DeviceError

OPENCL: Final = "opencl"
"""The one interface that is not WebGPU's."""

WEBGPU: Final = "webgpu"
"""The `api` of a device that only adapters of WebGPU reach, and the name under which a host says why it has
no adapter."""

COMMAND: Final = (*RUNNER_COMMAND, "--adapters")
"""The command of that process, whose answer is an `AdapterReport`."""

LISTING_LIMIT_S: Final = 15.0
"""Seconds that listing the adapters may take. Loading the drivers takes half a second, on a busy host some;
the rest of a listing of all devices must fit behind it into `agent.devices.PROBE_TIMEOUT_S`."""

_READING_S: Final = 0.5
"""Seconds to read an answer that is there already."""

_VENDORS: Final = {
    0x10DE: "nvidia", 0x1002: "advanced micro devices", 0x8086: "intel", 0x13B5: "arm", 0x5143: "qualcomm",
}  # fmt: skip
"""Vendors of GPUs by their numbers on the PCI bus, as their OpenCL drivers write them, in lower case."""


class Adapter(Wire):
    """An adapter, as its driver describes it. `interface`: as the option `backend` names it."""

    interface: Text
    name: Text
    is_cpu: bool
    vendor: Text
    vendor_id: int
    driver: Text


class AdapterReport(Wire):
    """The answer of `python -m agent.runner --adapters`. `reason`: why there are none; empty if there are."""

    adapters: Annotated[tuple[Adapter, ...], Field(max_length=MAX_DEVICES)] = ()
    reason: Text = ""


def list_adapters() -> AdapterReport:
    """List the adapters in this process."""
    try:
        return AdapterReport(adapters=_adapters())
    except ImportError as error:
        reason = f"the extra webgpu is not installed ({error}): {install_command(WEBGPU)}"
    except (DeviceError, OSError) as error:
        reason = str(error)
    return AdapterReport(reason=reason)


@contextmanager
def listing_adapters() -> Iterator[Callable[[], AdapterReport]]:
    """Start to list the adapters in another process; what this yields waits for its answer."""
    # From here on: what this process does meanwhile must fit into the limit of a listing, too.
    until_s = time.monotonic() + LISTING_LIMIT_S
    # In the group of this process, which is killed as a whole where this one takes too long.
    with subprocess.Popen(  # noqa: S603  # our own runner
        COMMAND,
        env=for_runner(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield lambda: _answer(process, until_s)
        finally:
            process.kill()


def _answer(process: "subprocess.Popen[bytes]", until_s: float) -> AdapterReport:
    failed = "listing WebGPU adapters failed"
    try:
        # An answer that is there is taken, however late it is.
        out, log = process.communicate(timeout=max(_READING_S, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return AdapterReport(reason=f"{failed}: no answer within {LISTING_LIMIT_S:g} s")
    if process.returncode != 0:
        ended = told(process.returncode, log.decode(errors="replace"))
        return AdapterReport(reason=f"{failed}: the process ended with {ended}")
    try:
        return AdapterReport.model_validate_json(out)
    except ValueError as error:
        return AdapterReport(reason=f"{failed}: the answer is not understood: {error}")


def with_adapters(devices: Sequence[Device], listed: AdapterReport) -> tuple[list[Device], list[str]]:
    """Return the devices with the adapters that are the same silicon, those that only adapters reach, and why
    there are no adapters or some of them are left out.

    WebGPU tells neither an adapter's UUID nor its place on the PCI bus. A CPU is that of the host; a GPU is
    the OpenCL device of its name, or the only one of its vendor.
    """
    counts = Counter(_identity(adapter) for adapter in listed.adapters)
    found, left_out = {device.device_id: device for device in devices}, [listed.reason] * bool(listed.reason)
    for adapter in listed.adapters:
        interface, name = _identity(adapter)
        if counts[interface, name] > 1:
            left_out.append(
                f"{interface} has {counts[interface, name]} adapters called {name}: no telling which"
            )
            continue
        same = _same(adapter, list(found.values())) or _new(adapter, len(found))
        facts = same.facts | _facts(adapter)
        found[same.device_id] = same.model_copy(update={"facts": facts})
    # Said once, however many adapters have the name.
    return list(found.values()), list(dict.fromkeys(left_out))


def with_adapter(device: Device, interface: str) -> Device:
    """Return the device with the facts of its adapter as the driver gives them now.

    Raises `DeviceError` where there is none of its name any more.
    """
    wanted = interface, device.facts.get(f"{interface}_adapter", "")
    present = [adapter for adapter in _adapters() if _identity(adapter) == wanted]
    if len(present) != 1:
        raise DeviceError(
            f"{device.device_id} had the {interface} adapter {wanted[1]!r} when the agent listed it, and "
            f"{len(present)} have that name now; restart the agent"
        )
    return device.model_copy(update={"facts": device.facts | _facts(present[0])})


def _adapters() -> tuple[Adapter, ...]:
    from runtime.delegates.gpu.backends.webgpu import adapter  # noqa: PLC0415  # loads the drivers

    return tuple(
        Adapter(
            interface=adapter.interface_of(one),
            name=one.info["device"],
            is_cpu=one.info["adapter_type"] == "CPU",
            vendor=one.info["vendor"],
            vendor_id=one.info["vendor_id"],
            driver=one.info["description"],
        )
        for one in adapter.list_adapters()
    )


def _identity(adapter: Adapter) -> tuple[str, str]:
    return adapter.interface, adapter.name


def _facts(adapter: Adapter) -> dict[str, str]:
    return {f"{adapter.interface}_adapter": adapter.name, f"{adapter.interface}_driver": adapter.driver}


def _kind(adapter: Adapter) -> Literal["cpu", "gpu"]:
    return "cpu" if adapter.is_cpu else "gpu"


def _same(adapter: Adapter, devices: Sequence[Device]) -> Device | None:
    """Return the device that an adapter is, or None."""
    # One that has an adapter of this interface already is other silicon than a second one.
    own = f"{adapter.interface}_adapter"
    alike = [d for d in devices if d.kind == _kind(adapter) and own not in d.facts]
    if adapter.is_cpu:
        return next(iter(alike), None)
    named = [d for d in alike if d.name == adapter.name or adapter.name in d.facts.values()]
    vendor = _VENDORS.get(adapter.vendor_id, "")
    of_vendor = [d for d in alike if vendor and vendor in d.vendor.lower()]
    return next((group[0] for group in (named, of_vendor) if len(group) == 1), None)


def _new(adapter: Adapter, number: int) -> Device:
    """Describe a device without an OpenCL driver. It may be one with one, so it never runs beside those."""
    return Device(
        device_id=f"{WEBGPU}-{_kind(adapter)}-{number}",
        kind=_kind(adapter),
        api="webgpu",
        name=f"{cpu_model()} (WebGPU on CPU)" if adapter.is_cpu else adapter.name,
        vendor=adapter.vendor,
        delegates=(),
        exclusion_group=HOST_GROUP,
        environment=host_environment(),
        facts=host_facts(),
    )
