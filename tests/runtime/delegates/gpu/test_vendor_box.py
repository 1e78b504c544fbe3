"""The host side over drivers that behave as GPUs' do: PoCL behind a layer of the OpenCL loader."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.devices import ProbeReport, probe
from agent.wire.messages import NARROW_NUMBERS_FACT, ReasonCode, Status
from tests.agent.embedded_agent import EmbeddedAgent, job, put_model
from tests.runtime.delegates.gpu.caller_models import dense
from tests.runtime.delegates.gpu.vendor_box import Box

CLOSE = 1e-5
GPUS = 8
PATIENCE_S = 300.0
"""For a listing of eight devices that share two cores with other tests."""
HUNG_S = 25.0
"""Most seconds of an attempt on a device that hangs: several times what it takes until then."""

CAMPAIGN = """\
version: 1
campaign: gpus
defaults:
  measure: {blocks: 1, rounds: 3, slice: {seconds: 0.01}, warmup: {runs: 1, min_seconds: 0}}
  retry: {times: 0}
models: [{id: a, source: a.tflite}, {id: b, source: b.tflite}, {id: c, source: c.tflite}]
delegates: {gpu: {kind: gpu}}
devices: [{kind: gpu}]
"""


@pytest.mark.slow
def test_a_driver_that_refuses_what_it_may_runs_the_model_all_the_same(tmp_path: Path) -> None:
    """One process at a time has a context, binaries and empty buffers are refused, an event costs time."""
    strict = Box(exclusive=True, refuses_binaries=True, refuses_null=True, event_us=50)
    found = strict.ran(tmp_path)
    assert found.get("device") == "NVIDIA H200", found
    assert found["error"] < CLOSE
    assert not found["smaller_tiles"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "box",
    [Box(), Box(exclusive=True), Box(refuses_binaries=True), Box(refuses_null=True), Box(event_us=200)],
    ids=["plain", "exclusive", "refuses_binaries", "refuses_null", "events"],
)
def test_each_trait_of_a_driver_by_itself(tmp_path: Path, box: Box) -> None:
    """Also in a second start, with the cache of the first: no two binaries of this driver are alike."""
    for _ in range(2):
        found = box.ran(tmp_path)
        assert found.get("error", 1.0) < CLOSE, found


@pytest.mark.slow
def test_a_kernel_that_runs_in_smaller_groups_only_is_left_to_the_cpu_with_that_reason(
    tmp_path: Path,
) -> None:
    fault = Box(largest_group=64).ran(tmp_path)["fault"]
    assert "in work-groups of at most 64 items, and it is made for 256" in fault


@pytest.mark.slow
def test_smaller_tiles_stand_in_for_kernels_that_run_in_smaller_groups_only_and_the_settings_say_why(
    tmp_path: Path,
) -> None:
    """The next smaller ones, as long as these are refused, too; a start from the cache says the same."""
    box = Box(largest_group=128, limited=("__m64n64", "__m32n64"))
    for _ in range(2):
        found = box.ran(tmp_path, rows=16384)
        assert found.get("error", 1.0) < CLOSE, found
        said = found["smaller_tiles"].split("; ")
        assert [re.findall(r"__(m\d+n64)_", one) for one in said] == [["m64n64"], ["m32n64"]]
        assert all("in work-groups of at most 128 items, and it is made for 256" in one for one in said)


@pytest.mark.slow
@pytest.mark.parametrize("later", [False, True], ids=["at_once", "behind_the_launch"])
def test_a_device_that_is_lost_is_named_and_gives_no_result(tmp_path: Path, later: bool) -> None:
    # Of each run's two launches this is one of the second run.
    fault = Box(lost_at=6, later=later).ran(tmp_path)["fault"]
    assert fault.startswith("DeviceLostError")
    assert "start a new process" in fault


@pytest.mark.slow
def test_constants_are_divided_among_buffers_of_at_most_a_quarter_of_the_memory(tmp_path: Path) -> None:
    """6.25 MiB of weights for each of two layers, where a buffer may have 8 MiB."""
    found = Box(memory_mib=32).ran(tmp_path, side=1280)
    assert found.get("error", 1.0) < CLOSE, found


@pytest.mark.slow
def test_a_layer_that_no_buffer_can_hold_is_refused_with_both_sizes(tmp_path: Path) -> None:
    fault = Box(memory_mib=32).ran(tmp_path, side=1536)["fault"]
    assert "constants of one layer need 9.0 MiB in one buffer, of which NVIDIA H200 gives 8.0 MiB" in fault


Boxed = Callable[[Box], Path]


@pytest.fixture
def boxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boxed:
    """Return a function that lets every process which this one starts find these GPUs, and returns a
    folder.
    """

    def enter(box: Box) -> Path:
        for name, value in box.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        return tmp_path

    return enter


def gpus(report: ProbeReport) -> dict[str, str]:
    """Return the ids of OpenCL's devices with their UUIDs."""
    found = (device for device in report.devices if device.api == "opencl")
    return {device.device_id: device.environment["opencl_uuid"] for device in found}


@pytest.mark.slow
def test_eight_gpus_of_one_name_are_told_apart_and_a_host_needs_no_cpu_device(boxed: Boxed) -> None:
    boxed(Box(devices=GPUS, refuses_null=True))
    report = probe(timeout_s=PATIENCE_S)
    assert list(gpus(report)) == [f"opencl-nvidia-gpu-{number}" for number in range(GPUS)]
    assert len(set(gpus(report).values())) == GPUS
    found = [device for device in report.devices if device.api == "opencl"]
    assert {(device.kind, device.name) for device in found} == {("gpu", "NVIDIA H200")}
    assert len({device.facts[NARROW_NUMBERS_FACT] for device in found}) == 1


@pytest.mark.slow
def test_doctor_names_the_gpus_and_what_lies_between_them_and_a_program(boxed: Boxed) -> None:
    folder = boxed(Box())
    done = farm(folder, "doctor")
    assert "NVIDIA H200" in done.stdout
    assert "OPENCL_LAYERS" in done.stdout


@pytest.mark.exhaustive
def test_an_attempt_runs_on_the_gpu_that_it_names_and_its_neighbours_stay_free(boxed: Boxed) -> None:
    agent = EmbeddedAgent(boxed(Box(devices=2)), patience_s=PATIENCE_S)
    try:
        model = stored(agent)
        for number in (0, 1):
            result = agent.run(job(model, "gpu", f"opencl-nvidia-gpu-{number}"))
            assert (result.status, result.reason) == (Status.DONE, None)
            assert result.environment["opencl_uuid"] == gpus_of(agent)[f"opencl-nvidia-gpu-{number}"]
    finally:
        agent.close()


@pytest.mark.slow
def test_an_attempt_on_a_gpu_that_is_lost_ends_as_one_for_quarantine(boxed: Boxed) -> None:
    agent = EmbeddedAgent(boxed(Box(lost_at=12)), patience_s=PATIENCE_S)
    try:
        result = agent.run(job(stored(agent), "gpu", "opencl-nvidia-gpu-0"))
    finally:
        agent.close()
    assert result.reason is not None
    assert result.reason.code is ReasonCode.DEVICE_LOST


@pytest.mark.exhaustive
def test_a_gpu_that_hangs_costs_its_attempt_alone(boxed: Boxed, tmp_path: Path) -> None:
    """The attempt ends at its limit, and the next one gets the lease and the device."""
    (hangs := tmp_path / "broken" / "hangs").parent.mkdir()
    folder = boxed(Box(hangs_at=12, fault=hangs))
    agent = EmbeddedAgent(folder, sandbox={"on": True, "read": [str(hangs.parent)]}, patience_s=PATIENCE_S)
    try:
        model = stored(agent)
        hangs.touch()
        limits = {"soft_limit_s": HUNG_S, "hard_limit_s": HUNG_S + 1}
        ended = agent.run(job(model, "gpu", "opencl-nvidia-gpu-0", **limits))
        assert ended.reason is not None
        assert ended.reason.code is ReasonCode.TIMEOUT
        hangs.unlink()
        again = agent.run(job(model, "gpu", "opencl-nvidia-gpu-0"))
        assert (again.status, again.reason) == (Status.DONE, None)
    finally:
        agent.close()


@pytest.mark.exhaustive
def test_a_campaign_goes_on_beside_a_gpu_that_is_lost_again_and_again(boxed: Boxed) -> None:
    """It gets no cell after the third; its neighbour, of the same name, measures every model."""
    folder = boxed(Box(devices=2, lost_at=12))
    for rows, name in enumerate("abc", 8):
        (folder / f"{name}.tflite").write_bytes(dense(rows))
    (folder / "models.yaml").write_text(CAMPAIGN, encoding="utf-8")
    farm(folder, "submit", str(folder / "models.yaml"))
    results = json.loads(farm(folder, "results", "--format", "json").stdout)
    ended = sorted((one["device"], one["status"], (one["reason"] or {}).get("code")) for one in results)
    lost, other = "opencl-nvidia-gpu-0", "opencl-nvidia-gpu-1"
    assert ended == [(lost, "failed", "device_lost")] * 3 + [(other, "done", None)] * 3
    listed = json.loads(farm(folder, "devices", "--json").stdout)["devices"]
    states = {one["device_id"]: one["state"] for one in listed}
    assert (states[lost], states[other]) == ("quarantined", "idle")


def farm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `farm` with its home in a folder."""
    program = Path(sys.executable).with_name("farm")
    environment = {**os.environ, "FARM_HOME": str(folder / "home")}
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)


def stored(agent: EmbeddedAgent) -> tuple[str, int]:
    """Bring the model into the agent's store; its hash and size."""
    path = agent.folder / "model.tflite"
    path.write_bytes(dense())
    return put_model(agent.store, path)


def gpus_of(agent: EmbeddedAgent) -> dict[str, str]:
    return gpus(ProbeReport(devices=agent.hello.devices))
