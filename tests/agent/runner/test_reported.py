"""The environment of a result is the one that its measuring process found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.runner.probe.host import runtime_identity, sources
from agent.wire.messages import AgentHello, Device, ReasonCode, Status, environment_id
from agent.wire.provenance import conditions_of
from runtime.delegates.registry import delegate_descriptor
from tests.agent.embedded_agent import EmbeddedAgent, job
from tests.needs import REPOSITORY, absent

KINDS = ("cpu", "gpu", "litert")


def device_for(agent: EmbeddedAgent, kind: str) -> Device:
    hosts = [device for device in agent.hello.devices if kind in device.delegates]
    return hosts[0] if hosts else absent(f"no device for {kind}")


def relisted(probed: list[str], folder: Path, **changes: str) -> list[str]:
    """Change the probe's answer to that of a time when an OpenCL device was another one, or at another
    place.
    """
    answer = json.loads(Path(probed[-1]).read_text())
    for device in answer["devices"]:
        if device["api"] == "opencl":
            for name, value in changes.items():
                part = "facts" if name == "opencl_index" else "environment"
                device[part][name] = value
    changed = folder / "earlier.json"
    changed.write_text(json.dumps(answer))
    return [*probed[:-1], str(changed)]


@pytest.mark.slow
def test_an_interface_of_a_device_has_an_environment_of_its_own(start_agent, stored):
    agent = start_agent()
    device = device_for(agent, "gpu")
    interfaces = device.interfaces_of("gpu")
    if len(interfaces) < 2:
        absent("no WebGPU adapter")
    through = {"backend": interfaces[1]}
    result = agent.run(job(stored, "gpu", device.device_id, delegate_options=through | {"tuning": "none"}))
    assert result.status is Status.DONE, result.reason
    assert result.environment == device.environment_of("gpu", through)
    assert {"webgpu_adapter", "webgpu_driver", "wgpu"} <= result.environment.keys()
    assert (result.facts["interface"], result.measurement.settings["backend"]) == (interfaces[1],) * 2
    gone = job(stored, "gpu", device.device_id, delegate_options={"backend": "d3d12"}, attempt_id="gone")
    assert agent.refusal(gone).reason.code is ReasonCode.NO_DEVICE


@pytest.mark.slow
def test_a_package_that_is_upgraded_under_a_running_agent_is_filed_under_its_new_version(
    start_agent, stored, tmp_path, monkeypatch
):
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    agent = start_agent()
    before = device_for(agent, "litert").environment_of("litert", {})
    metadata = packages / "numpy-99.9.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.9\n")
    result = agent.run(job(stored))
    assert result.environment == {**before, "numpy": "99.9"}
    assert environment_id(conditions_of(result.environment)) == environment_id(conditions_of(before))


def test_what_a_runner_says_of_its_machine_is_looked_into_and_not_believed(
    start_agent, stored, probed, tmp_path
):
    answer = json.loads(Path(probed[-1]).read_text())
    truth = answer["devices"][0]["environment"]
    answer["devices"][0]["environment"] = {**truth, "kernel": "of yesterday"}
    (listed := tmp_path / "listed.json").write_text(json.dumps(answer))
    runner = [sys.executable, str(REPOSITORY / "tests/agent/processes/bad_runners.py"), "liar"]
    agent = start_agent(runner=runner, probe_command=[*probed[:-1], str(listed)], patience_s=20.0)
    listed.write_text(Path(probed[-1]).read_text())
    result = agent.run(job(stored))
    assert (result.status, result.environment["kernel"]) == (Status.DONE, "a lie")
    looked = agent.expect(AgentHello)
    (device,) = (one for one in looked.devices if one.device_id == result.device_id)
    assert device.environment == truth


@pytest.mark.slow
def test_another_device_in_the_place_of_the_listed_one_is_never_measured_under_its_name(
    start_agent, stored, probed, tmp_path
):
    agent = start_agent(probe_command=relisted(probed, tmp_path, opencl_device="H200", opencl_uuid="ab" * 16))
    device = device_for(agent, "gpu")
    result = agent.run(job(stored, "gpu", device.device_id))
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.DEVICE_LOST)
    assert f"{device.device_id} is not the device that the agent listed: OpenCL device 0 was H200" in (
        result.reason.text
    )
    assert result.reason.text.endswith("restart the agent")


LOADED = """
import sys
from runtime.measure.benchmark import measure
from runtime.measure.loading import Opener, Subject
opener = Opener.prepare(sys.argv[1], {})
measure(Subject(opener, sys.argv[2], "0" * 64))
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("runtime.") and m.__file__), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_delegate_names_every_source_that_a_run_with_it_executes(kind, tiny):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, kind, str(tiny)], capture_output=True, text=True, check=True
    )
    runtime = Path(str(sys.modules["runtime"].__file__)).parent
    executes = delegate_descriptor(kind).executes
    loaded = {Path(line).relative_to(runtime) for line in done.stdout.split()}
    named = {path.relative_to(runtime) for path in sources(executes)}
    if kind == "litert":
        # Its wrapper is all that is executed: our reader finds no more than inputs and outputs.
        peers = {p for p in loaded if p.parts[:2] == ("delegates", "peers") and p.name != "__init__.py"}
        assert named == {Path("delegates/litert.py")} | peers
        return
    # How a figure is measured is the condition `measuring`; the forms of a profile are written behind a run.
    forms = {path for path in loaded if path.parts[:2] == ("common", "profile")}
    forms.add(Path("common/litert_statistics.py"))
    assert {path for path in loaded - forms if path.parts[0] not in ("measure", "judge")} - named == set()


@pytest.mark.parametrize("kind", [*KINDS, "litert-gpu", "openvino"])
def test_what_a_delegate_names_as_executed_exists(kind):
    assert [name for name in delegate_descriptor(kind).executes if not sources([name])] == []


def test_an_edited_gpu_kernel_is_another_version_for_no_other_delegate():
    kernels = {path for path in sources(delegate_descriptor("gpu").executes) if path.suffix == ".cl"}
    assert kernels
    for kind in ("cpu", "litert"):
        assert not kernels & set(sources(delegate_descriptor(kind).executes))
    assert len({runtime_identity(delegate_descriptor(kind).executes) for kind in KINDS}) == len(KINDS)
