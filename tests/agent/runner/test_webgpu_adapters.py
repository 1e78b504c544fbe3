"""The adapters of WebGPU, matched with the devices that OpenCL lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agent.runner.probe import webgpu_adapters
from agent.runner.probe.webgpu_adapters import with_adapter, with_adapters
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import Device
from runtime.errors import DeviceError

NVIDIA, INTEL, MESA = 0x10DE, 0x8086, 0x10005


@dataclass(frozen=True)
class Adapter:
    """An adapter as `wgpu` gives it."""

    info: dict[str, Any]


def adapter(interface: str, name: str, vendor: int, kind: str = "DiscreteGPU", driver: str = "1") -> Adapter:
    return Adapter(
        {
            "backend_type": interface, "adapter_type": kind, "device": name,
            "vendor_id": vendor, "vendor": "", "description": driver,
        }
    )  # fmt: skip


def device(device_id: str, kind: str, name: str, vendor: str) -> Device:
    return Device.model_validate(
        {
            "device_id": device_id, "kind": kind, "api": "opencl", "name": name, "vendor": vendor,
            "delegates": (), "exclusion_group": f"{HOST_GROUP}/{device_id}", "environment": {},
        }
    )  # fmt: skip


CPU = device("pocl-0", "cpu", "Xeon (OpenCL on CPU)", "GenuineIntel")
H100 = device("gpu-0", "gpu", "NVIDIA H100", "NVIDIA Corporation")
H200 = device("gpu-1", "gpu", "NVIDIA H200", "NVIDIA Corporation")
ARC = device("gpu-2", "gpu", "gfx-arc", "Intel(R) Corporation")


def reached(monkeypatch, devices: list[Device], *adapters: Adapter) -> tuple[dict[str, list[str]], list[str]]:
    """Return the interfaces of WebGPU by device, and what is told of the others."""
    monkeypatch.setattr(webgpu_adapters, "_adapters", lambda: list(adapters))
    found, told = with_adapters(devices)
    ends = "_adapter"
    return {d.device_id: [f.removesuffix(ends) for f in d.facts if f.endswith(ends)] for d in found}, told


def test_an_adapter_is_the_host_s_cpu_or_the_gpu_of_its_name_or_the_only_one_of_its_vendor(monkeypatch):
    found, told = reached(
        monkeypatch,
        [CPU, H100, H200, ARC],
        adapter("Vulkan", "llvmpipe", MESA, "CPU"),
        adapter("OpenGL", "llvmpipe", MESA, "CPU"),
        adapter("Vulkan", "NVIDIA H200", NVIDIA),
        adapter("Vulkan", "Intel(R) Arc(tm) A770", INTEL),
    )
    assert found == {"pocl-0": ["vulkan", "opengl"], "gpu-0": [], "gpu-1": ["vulkan"], "gpu-2": ["vulkan"]}
    assert told == []


def test_an_adapter_that_may_be_one_of_two_devices_never_runs_beside_either(monkeypatch):
    monkeypatch.setattr(webgpu_adapters, "_adapters", lambda: [adapter("Vulkan", "Quadro", NVIDIA)])
    *known, new = with_adapters([H100, H200])[0]
    assert [one.facts for one in known] == [{}, {}]
    assert (new.device_id, new.api, new.kind, new.name) == ("webgpu-gpu-2", "webgpu", "gpu", "Quadro")
    assert new.exclusion_group == HOST_GROUP


def test_two_adapters_of_one_name_are_left_out_and_told(monkeypatch):
    found, told = reached(monkeypatch, [H100], *[adapter("Vulkan", "NVIDIA H100", NVIDIA)] * 2)
    assert found == {"gpu-0": []}
    assert told == ["vulkan has 2 adapters called NVIDIA H100: no telling which"]


def test_an_adapter_that_disappears_is_told_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(webgpu_adapters, "_adapters", lambda: [adapter("Vulkan", "NVIDIA H100", NVIDIA)])
    ((listed,), _) = with_adapters([H100])
    monkeypatch.setattr(
        webgpu_adapters, "_adapters", lambda: [adapter("Vulkan", "NVIDIA H100", NVIDIA, driver="2")]
    )
    assert with_adapter(listed, "vulkan").facts["vulkan_driver"] == "2"
    monkeypatch.setattr(webgpu_adapters, "_adapters", list)
    with pytest.raises(DeviceError, match="gpu-0 had the vulkan adapter 'NVIDIA H100' when the agent listed"):
        with_adapter(listed, "vulkan")


@pytest.mark.parametrize("error", [ImportError("No module named 'wgpu'"), DeviceError("no adapter")])
def test_without_adapters_the_devices_are_those_of_opencl_and_the_reason_is_told(monkeypatch, error):
    def failing() -> list[Any]:
        raise error

    monkeypatch.setattr(webgpu_adapters, "_adapters", failing)
    found, (why,) = with_adapters([CPU])
    assert found == [CPU]
    assert str(error) in why
