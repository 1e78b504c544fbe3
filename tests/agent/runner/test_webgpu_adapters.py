"""The adapters of WebGPU, matched with the devices that OpenCL lists."""

from __future__ import annotations

import sys
import time

import pytest

from agent.runner.probe import webgpu_adapters
from agent.runner.probe.webgpu_adapters import (
    Adapter,
    AdapterReport,
    list_adapters,
    listing_adapters,
    with_adapter,
    with_adapters,
)
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import Device
from runtime.errors import DeviceError

NVIDIA, INTEL, MESA = 0x10DE, 0x8086, 0x10005


def adapter(interface: str, name: str, vendor: int, driver: str = "1", *, is_cpu: bool = False) -> Adapter:
    return Adapter(interface=interface, name=name, vendor_id=vendor, vendor="", driver=driver, is_cpu=is_cpu)


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


def reached(devices: list[Device], *adapters: Adapter) -> tuple[dict[str, list[str]], list[str]]:
    """Return the interfaces of WebGPU by device, and what is told of the others."""
    found, told = with_adapters(devices, AdapterReport(adapters=adapters))
    ends = "_adapter"
    return {d.device_id: [f.removesuffix(ends) for f in d.facts if f.endswith(ends)] for d in found}, told


def test_an_adapter_is_the_host_s_cpu_or_the_gpu_of_its_name_or_the_only_one_of_its_vendor():
    found, told = reached(
        [CPU, H100, H200, ARC],
        adapter("vulkan", "llvmpipe", MESA, is_cpu=True),
        adapter("opengl", "llvmpipe", MESA, is_cpu=True),
        adapter("vulkan", "NVIDIA H200", NVIDIA),
        adapter("vulkan", "Intel(R) Arc(tm) A770", INTEL),
    )
    assert found == {"pocl-0": ["vulkan", "opengl"], "gpu-0": [], "gpu-1": ["vulkan"], "gpu-2": ["vulkan"]}
    assert told == []


def test_an_adapter_that_may_be_one_of_two_devices_never_runs_beside_either():
    listed = AdapterReport(adapters=(adapter("vulkan", "Quadro", NVIDIA),))
    *known, new = with_adapters([H100, H200], listed)[0]
    assert [one.facts for one in known] == [{}, {}]
    assert (new.device_id, new.api, new.kind, new.name) == ("webgpu-gpu-2", "webgpu", "gpu", "Quadro")
    assert new.exclusion_group == HOST_GROUP


def test_two_adapters_of_one_name_are_left_out_and_told():
    found, told = reached([H100], *[adapter("vulkan", "NVIDIA H100", NVIDIA)] * 2)
    assert found == {"gpu-0": []}
    assert told == ["vulkan has 2 adapters called NVIDIA H100: no telling which"]


def test_an_adapter_that_disappears_is_told_before_anything_is_measured(monkeypatch):
    present = AdapterReport(adapters=(adapter("vulkan", "NVIDIA H100", NVIDIA),))
    ((listed,), _) = with_adapters([H100], present)
    monkeypatch.setattr(
        webgpu_adapters, "_adapters", lambda: [adapter("vulkan", "NVIDIA H100", NVIDIA, driver="2")]
    )
    assert with_adapter(listed, "vulkan").facts["vulkan_driver"] == "2"
    monkeypatch.setattr(webgpu_adapters, "_adapters", list)
    with pytest.raises(DeviceError, match="gpu-0 had the vulkan adapter 'NVIDIA H100' when the agent listed"):
        with_adapter(listed, "vulkan")


@pytest.mark.parametrize("error", [ImportError("No module named 'wgpu'"), DeviceError("no adapter")])
def test_without_adapters_the_devices_are_those_of_opencl_and_the_reason_is_told(monkeypatch, error):
    def failing() -> tuple[Adapter, ...]:
        raise error

    monkeypatch.setattr(webgpu_adapters, "_adapters", failing)
    found, (why,) = with_adapters([CPU], list_adapters())
    assert found == [CPU]
    assert str(error) in why


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import ctypes; ctypes.string_at(0)", "the process ended with SIGSEGV"),
        ("import sys; sys.exit('no driver')", "the process ended with exit code 1: no driver"),
        ("import time; time.sleep(30)", "no answer within 1 s"),
        ("print('{}x')", "the answer is not understood: "),
    ],
    ids=["crashes", "fails", "hangs", "writes_nonsense"],
)
def test_a_driver_of_adapters_that_fails_costs_these_alone(monkeypatch, script, reason):
    monkeypatch.setattr(webgpu_adapters, "COMMAND", (sys.executable, "-c", script))
    monkeypatch.setattr(webgpu_adapters, "LISTING_LIMIT_S", 1.0 if "sleep" in script else 30.0)
    with listing_adapters() as adapters:
        found, (why,) = with_adapters([CPU], adapters())
    assert found == [CPU]
    assert why.startswith(f"listing WebGPU adapters failed: {reason}")


def test_an_answer_that_came_in_time_is_taken_late(monkeypatch):
    answer = AdapterReport(reason="no driver").model_dump_json()
    monkeypatch.setattr(webgpu_adapters, "COMMAND", (sys.executable, "-c", f"print('{answer}')"))
    monkeypatch.setattr(webgpu_adapters, "LISTING_LIMIT_S", 0.0)
    with listing_adapters() as adapters:
        time.sleep(1.0)
        assert adapters().reason == "no driver"


def test_a_listing_that_is_given_up_leaves_no_process(monkeypatch):
    monkeypatch.setattr(webgpu_adapters, "COMMAND", (sys.executable, "-c", "import time; time.sleep(30)"))
    began_s = time.monotonic()
    with pytest.raises(ZeroDivisionError), listing_adapters():
        raise ZeroDivisionError
    # The block waits for the process, which it has killed.
    assert time.monotonic() - began_s < 25
