"""The adapters of WebGPU, as further interfaces to the devices of this host."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from agent.runner.probe.host import cpu_model, host_environment, host_facts
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import Device
from runtime.common.installation import install_command
from runtime.errors import DeviceError

OPENCL: Final = "opencl"
"""The one interface that is not WebGPU's."""

WEBGPU: Final = "webgpu"
"""The `api` of a device that only adapters of WebGPU reach, and the name under which a host says why it has
no adapter."""

_VENDORS: Final = {
    0x10DE: "nvidia", 0x1002: "advanced micro devices", 0x8086: "intel", 0x13B5: "arm", 0x5143: "qualcomm",
}  # fmt: skip
"""Vendors of GPUs by their numbers on the PCI bus, as their OpenCL drivers write them, in lower case."""


def with_adapters(devices: Sequence[Device]) -> tuple[list[Device], list[str]]:
    """Return the devices with the adapters that are the same silicon, those that only adapters reach, and why
    there are no adapters or some of them are left out.

    WebGPU tells neither an adapter's UUID nor its place on the PCI bus. A CPU is that of the host; a GPU is
    the OpenCL device of its name, or the only one of its vendor.
    """
    try:
        adapters = _adapters()
    except ImportError as error:
        return list(devices), [f"the extra webgpu is not installed ({error}): {install_command(WEBGPU)}"]
    except (DeviceError, OSError) as error:
        return list(devices), [str(error)]
    counts = Counter(_identity(adapter) for adapter in adapters)
    found, left_out = {device.device_id: device for device in devices}, []
    for adapter in adapters:
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


def _adapters() -> list[Any]:
    from runtime.delegates.gpu.backends.webgpu.adapter import list_adapters  # noqa: PLC0415  # loads the drivers

    return list_adapters()


def _identity(adapter: Any) -> tuple[str, str]:
    return adapter.info["backend_type"].lower(), adapter.info["device"]


def _facts(adapter: Any) -> dict[str, str]:
    interface, name = _identity(adapter)
    return {f"{interface}_adapter": name, f"{interface}_driver": adapter.info["description"]}


def _kind(adapter: Any) -> str:
    return "cpu" if adapter.info["adapter_type"] == "CPU" else "gpu"


def _same(adapter: Any, devices: Sequence[Device]) -> Device | None:
    """Return the device that an adapter is, or None."""
    interface, name = _identity(adapter)
    # One that has an adapter of this interface already is other silicon than a second one.
    alike = [d for d in devices if d.kind == _kind(adapter) and f"{interface}_adapter" not in d.facts]
    if _kind(adapter) == "cpu":
        return next(iter(alike), None)
    named = [d for d in alike if d.name == name or name in d.facts.values()]
    vendor = _VENDORS.get(adapter.info["vendor_id"], "")
    of_vendor = [d for d in alike if vendor and vendor in d.vendor.lower()]
    return next((group[0] for group in (named, of_vendor) if len(group) == 1), None)


def _new(adapter: Any, number: int) -> Device:
    """Describe a device without an OpenCL driver. It may be one with one, so it never runs beside those."""
    kind = _kind(adapter)
    return Device(
        device_id=f"{WEBGPU}-{kind}-{number}",
        kind="cpu" if kind == "cpu" else "gpu",
        api="webgpu",
        name=f"{cpu_model()} (WebGPU on CPU)" if kind == "cpu" else adapter.info["device"],
        vendor=adapter.info["vendor"],
        delegates=(),
        exclusion_group=HOST_GROUP,
        environment=host_environment(),
        facts=host_facts(),
    )
