"""The devices of CUDA, matched with those that OpenCL lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.runner.probe import cuda_devices
from agent.runner.probe.cuda_devices import with_cuda, with_cuda_now
from agent.wire.exclusion import HOST_GROUP
from agent.wire.messages import INTERFACE_FACT, Device
from runtime.delegates.gpu import DESCRIPTOR
from runtime.delegates.gpu.backends.cuda import device as backend
from runtime.delegates.gpu.backends.cuda.device import CudaDevice
from runtime.errors import DelegateError, DeviceError

H200 = CudaDevice(0, "NVIDIA H200", "1b" * 16, "0000:3b:00.0", (9, 0), 0)
T4 = CudaDevice(1, "Tesla T4", "a4" * 16, "0000:af:00.0", (7, 5), 0)
L4 = CudaDevice(2, "NVIDIA L4", "14" * 16, "0000:b1:00.0", (8, 9), 0)


def opencl(device_id: str, **environment: str) -> Device:
    return Device.model_validate(
        {
            "device_id": device_id, "kind": "gpu", "api": "opencl", "name": "GPU", "delegates": (),
            "exclusion_group": f"{HOST_GROUP}/{device_id}", "environment": environment,
        }
    )  # fmt: skip


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put these devices in the place of the driver's list; the driver itself is not called."""
    monkeypatch.setattr(cuda_devices, "_NODE", tmp_path)
    monkeypatch.setattr(cuda_devices, "_listed", lambda: [H200, T4, L4])
    monkeypatch.setattr(backend, "driver_version", lambda: "12.8")
    monkeypatch.setattr(backend, "kernel_driver", lambda: "570.86")


@pytest.mark.usefixtures("listed")
def test_a_device_is_that_of_its_uuid_or_its_place_on_the_bus_and_keeps_its_group() -> None:
    known = [opencl("gpu-0", opencl_uuid=T4.uuid), opencl("gpu-1", opencl_pci=H200.pci)]
    found, told = with_cuda(known)
    assert {d.device_id: d.facts.get("cuda_uuid") for d in found} == {
        "gpu-0": T4.uuid, "gpu-1": H200.uuid, "cuda-gpu-2": L4.uuid,
    }  # fmt: skip
    assert [d.exclusion_group for d in found] == [f"{HOST_GROUP}/gpu-0", f"{HOST_GROUP}/gpu-1", HOST_GROUP]
    assert told == []


@pytest.mark.usefixtures("listed")
def test_opencl_stays_the_default_where_it_is_and_cuda_is_where_it_is_not() -> None:
    *_, both, alone = with_cuda([opencl("gpu-0", opencl_uuid=H200.uuid)])[0]
    first = with_cuda([opencl("gpu-0", opencl_uuid=H200.uuid)])[0][0]
    assert list(DESCRIPTOR.interfaces(first)) == ["opencl", "cuda"]
    assert list(DESCRIPTOR.interfaces(alone)) == ["cuda"]
    assert DESCRIPTOR.interfaces(both)["cuda"]["cuda_version"] == "12.8"
    chosen = alone.model_copy(update={"facts": alone.facts | {INTERFACE_FACT: "cuda"}})
    assert DESCRIPTOR.device_options(chosen) == {"backend": "cuda", "device": L4.uuid}


@pytest.mark.usefixtures("listed")
def test_a_device_that_disappears_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = with_cuda([opencl("gpu-0", opencl_uuid=T4.uuid)])[0][0]
    assert with_cuda_now(device).facts == device.facts
    monkeypatch.setattr(cuda_devices, "_listed", lambda: [H200])
    with pytest.raises(DeviceError, match=r"does not list the UUID a4a4.* any more; restart the agent"):
        with_cuda_now(device)


def test_a_driver_that_cannot_be_asked_is_told_and_a_host_without_one_lacks_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuses() -> list[CudaDevice]:
        raise DelegateError("no library")

    monkeypatch.setattr(cuda_devices, "_listed", refuses)
    monkeypatch.setattr(cuda_devices, "_NODE", tmp_path / "absent")
    assert with_cuda([]) == ([], [])
    monkeypatch.setattr(cuda_devices, "_NODE", tmp_path)
    assert with_cuda([]) == ([], ["no library"])
