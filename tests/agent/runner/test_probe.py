"""`python -m agent.runner --probe`: the host's devices, and what is missing with its remedy."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agent.devices import ProbeError, ProbeReport, probe, probe_limit_s
from agent.processes.sandbox import landlock
from agent.processes.sandbox.boundary import SandboxSettings
from agent.runner.probe import probe as runner_probe
from agent.runner.probe.host import exclusion_group
from agent.runner.probe.opencl_devices import Trials, platform_slug
from agent.wire.messages import (
    CONFORMANCE_FACT,
    FIRST_KERNEL_FACT,
    NARROW_NUMBERS_FACT,
    PROTOCOL_VERSION,
    WRONG_OPERATORS_FACT,
)
from runtime.delegates.abilities import Conformance
from runtime.delegates.cpu import DESCRIPTOR as CPU_DESCRIPTOR
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.gpu import DESCRIPTOR as GPU_DESCRIPTOR
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.processor import processor
from tests.agent.embedded_agent import alive, eventually
from tests.needs import absent
from tests.services.forks import run
from tests.services.known import CPU_ALONE, NO_ADAPTERS


def probe_with(**environment: str) -> ProbeReport:
    answer = subprocess.run(
        [sys.executable, "-m", "agent.runner", "--probe"],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    return ProbeReport.model_validate_json(answer.stdout)


@pytest.fixture(scope="module")
def listed() -> ProbeReport:
    """Return what a probe of this machine finds."""
    return probe_with()


@pytest.mark.slow
def test_every_device_tells_processors_of_one_name_apart(listed):
    for device in listed.devices:
        assert device.environment["processor"] == processor().model
        assert device.environment["processor_features"] == processor().features


def test_an_opencl_device_says_how_long_its_first_kernel_took_and_which_narrow_numbers_it_has(listed):
    host, device = listed.devices
    assert (host.api, device.api) == ("host", "opencl")
    assert device.name == f"{host.name} (OpenCL on CPU)", "not the class of processors of its compiler"
    assert float(device.facts[FIRST_KERNEL_FACT]) > 0
    assert device.facts[NARROW_NUMBERS_FACT].startswith("fp16 storage, ")
    # What a check of its operators has found is left out of what is measured there.
    plain = GPU_DESCRIPTOR.device_options(device)
    assert plain == {"device": int(device.facts["opencl_index"])}
    through = device.model_copy(update={"facts": {**device.facts, "interface": "x", "x_adapter": "a"}})
    assert GPU_DESCRIPTOR.device_options(through) == {"backend": "x", "device": "a"}
    wrong = device.model_copy(update={"facts": {**device.facts, WRONG_OPERATORS_FACT: "ADD,Resampler"}})
    assert GPU_DESCRIPTOR.device_options(wrong) == {**plain, "excluded_operators": "ADD,Resampler"}


@pytest.mark.exhaustive
def test_what_a_check_finds_is_kept_and_is_a_fact_of_the_device(tmp_path):
    environment = {**os.environ, "FARM_CACHE_DIR": str(tmp_path)}
    command = [str(Path(sys.executable).with_name("farm-agent")), "check"]
    for known in ("", ", as an earlier check found"):
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert re.search(rf": \d+ operators agree with the CPU path, 0 do not{known}\n$", ran.stdout)
    (device,) = (d for d in probe_with(FARM_CACHE_DIR=str(tmp_path)).devices if d.api == "opencl")
    assert re.fullmatch(r"\d+ operators agree with the CPU path", device.facts[CONFORMANCE_FACT])
    opened = GpuDelegate({"cache_dir": str(tmp_path / "opencl")})
    opened.keep_conformance(Conformance(("MUL",), {"ADD": "fp32: by hand", "SUB": "fp32: by hand"}))
    (device,) = (d for d in probe_with(FARM_CACHE_DIR=str(tmp_path)).devices if d.api == "opencl")
    assert device.facts[WRONG_OPERATORS_FACT] == "ADD,SUB"
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.count("fp32: by hand")) == (1, 2)


def test_host_without_opencl_says_what_to_install(tmp_path):
    report = probe_with(OCL_ICD_VENDORS=str(tmp_path), **NO_ADAPTERS)
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    missing, adapters = report.missing
    assert (missing.kind, adapters.kind) == ("gpu", "webgpu")
    assert "WebGPU finds no adapter: install a driver of Vulkan" in adapters.reason
    assert "pocl-opencl-icd" in missing.reason


@pytest.mark.slow
def test_a_device_that_its_driver_cannot_compile_for_is_missing_with_the_reason():
    report = probe_with(POCL_EXTRA_BUILD_FLAGS="-mcpu-of-the-future", **NO_ADAPTERS)
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    missing, _ = report.missing
    assert missing.kind == "gpu"
    assert "cannot compile for it; install a newer driver" in missing.reason
    assert missing.reason.endswith("(Invalid build option: -mcpu-of-the-future)")


@pytest.mark.parametrize(
    ("nodes", "seconds"),
    [((), 20.0), (("nvidia0", "nvidiactl", "nvidia-uvm"), 20.0), (("dri/renderD128", "dri/card0"), 20.0),
     ([f"nvidia{n}" for n in range(8)] + [f"dri/renderD{128 + n}" for n in range(8)], 90.0)],
    ids=["none", "one", "one_of_dri", "eight"],
)  # fmt: skip
def test_each_further_gpu_lengthens_the_limit_of_a_listing(tmp_path, nodes, seconds):
    for name in nodes:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert probe_limit_s(tmp_path) == seconds


@pytest.mark.slow
def test_two_probes_find_the_same_devices(listed):
    """But for the time that a driver took, and the memory that PoCL finds, each probe says the same."""
    changing = {FIRST_KERNEL_FACT: "", "opencl_memory_bytes": ""}
    first, second = (
        [device.model_copy(update={"facts": {**device.facts, **changing}}) for device in found.devices]
        for found in (listed, probe())
    )
    assert first == second


def foreign(**fields) -> DelegateDescriptor:
    return DelegateDescriptor(**{"name": "foreign", "implementation": "nowhere:Nothing", **fields})


def probed(monkeypatch, *descriptors: DelegateDescriptor) -> ProbeReport:
    """Return the report of a host on which only these delegates are installed."""
    known = {descriptor.name: descriptor for descriptor in descriptors}
    monkeypatch.setattr(runner_probe, "delegate_names", lambda: tuple(sorted(known)))
    monkeypatch.setattr(runner_probe, "delegate_descriptor", known.__getitem__)
    why = "no driver is loaded in this test"
    found = runner_probe.probe(without_drivers=why)
    return found.model_copy(update={"missing": tuple(one for one in found.missing if one.kind in known)})


def test_a_foreign_delegate_is_offered_on_the_devices_that_its_descriptor_takes(monkeypatch):
    report = probed(monkeypatch, CPU_DESCRIPTOR, foreign(environment=lambda: {"foreign": "1.2"}))
    (host,) = report.devices
    assert (host.delegates, report.missing) == (("cpu", "foreign"), ())
    assert host.environment_of("foreign", {}) == {**host.environment_of("cpu", {}), "foreign": "1.2"}
    (alone,) = probed(monkeypatch, CPU_DESCRIPTOR).devices
    assert host.environment_of("cpu", {}) == alone.environment_of("cpu", {}), (
        "another delegate is none of its business"
    )


def raising(*_: object) -> None:
    raise ZeroDivisionError("its own mistake")


@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        (foreign(hosts=lambda device: f"{device.device_id} is too slow"), "host-cpu is too slow"),
        (foreign(apis=("opencl",)), "no driver is loaded in this test"),
        (foreign(apis=()), "it names no api that a device could have"),
        (foreign(hosts=raising), "its package fails: ZeroDivisionError: its own mistake"),
        (foreign(environment=raising), "its package fails: ZeroDivisionError: its own mistake"),
        (foreign(environment=lambda: {"kernel": "6"}), "foreign: the environment field 'kernel' is the dev"),
        (foreign(environment=lambda: {"runtime": "6"}), "foreign: the environment field 'runtime' is the de"),
        (foreign(environment=lambda: {"size": 6}), "foreign: the environment field 'size' must be a text"),
    ],
)
def test_a_foreign_delegate_that_no_device_hosts_is_missing_and_costs_no_other(
    descriptor, reason, monkeypatch
):
    report = probed(monkeypatch, CPU_DESCRIPTOR, descriptor)
    assert [device.delegates for device in report.devices] == [("cpu",)]
    (missing,) = report.missing
    assert missing.kind == "foreign"
    assert missing.reason.startswith(reason)


def test_results_of_a_commit_are_looked_for_under_the_bytes_of_its_wheel():
    """Two wheels of one commit may be of different code: neither's results are reused for the other."""
    releases = ("delegate-farm@0a1b2c3+ababababab", "ai-edge-litert@0.0.1")
    found = runner_probe.hosted_by("cpu", (runner_probe.host_cpu(),), "", releases)
    assert found.releases == {"current": {}, "0a1b2c3": {"runtime": "0a1b2c3+ababababab"}}


def test_a_platform_that_lists_no_device_is_told_from_one_that_is_not_there(monkeypatch):
    """PoCL lists none where it can make no folder for its kernels, such as for a service without a home."""
    for name in ("XDG_CACHE_HOME", "POCL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    gpu, _ = probe_with(HOME="/dev/null", **NO_ADAPTERS).missing
    assert "is installed but lists no device; PoCL does so" in gpu.reason
    assert "(/dev/null)" in gpu.reason


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Portable Computing Language", "pocl"),
        ("NVIDIA CUDA", "nvidia"),
        ("Intel(R) OpenCL Graphics", "intel"),
        ("AMD Accelerated Parallel Processing", "amd"),
        ("Some Vendor's OpenCL 3.0", "some-vendor-s"),
        ("!!", "unnamed"),
    ],
)
def test_platforms_have_short_names(name, slug):
    assert platform_slug(name) == slug


CRASHES = """
import ctypes, sys
if "--without-drivers" not in sys.argv: ctypes.string_at(0)
from agent.runner.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_driver_that_crashes_costs_its_devices_but_not_the_cpu():
    report = probe([sys.executable, "-c", CRASHES])
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    assert "SIGSEGV" in report.missing[-1].reason


ADAPTERS_CRASH = """
import sys
from agent.runner.__main__ import main
from agent.runner.probe import webgpu_adapters
webgpu_adapters.COMMAND = (sys.executable, "-c", "import ctypes; ctypes.string_at(0)")
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_driver_of_adapters_that_crashes_costs_these_alone():
    report = probe([sys.executable, "-c", ADAPTERS_CRASH])
    assert [device.api for device in report.devices] == ["host", "opencl"]
    assert report.devices[1].interfaces_of("gpu") == ("opencl",)
    assert (report.missing[-1].kind, "SIGSEGV" in report.missing[-1].reason) == ("webgpu", True)


@pytest.mark.slow
def test_driver_that_hangs_costs_its_devices_but_not_the_cpu():
    report = probe(
        [sys.executable, "-c", CRASHES.replace("ctypes.string_at(0)", "__import__('time').sleep(600)")], 10.0
    )
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    assert "no answer within 10 s" in report.missing[-1].reason


def test_runner_that_cannot_answer_at_all_is_an_error():
    with pytest.raises(ProbeError, match="exit code 7: no luck"):
        probe([sys.executable, "-c", "import sys; sys.stderr.write('no luck\\n'); sys.exit(7)"])


NOSY = """
import json, os, pathlib, socket, sys, time
found = {}
def tried(name, action):
    try:
        action()
        found[name] = "done"
    except OSError:
        found[name] = "refused"
secrets = pathlib.Path(SECRETS)
tried("read", (secrets / "credentials.json").read_text)
tried("write", lambda: (secrets / "owned").write_text("x"))
tried("mode", lambda: os.setxattr(secrets, "user.owned", b"x"))
tried("network", lambda: socket.socket(socket.AF_INET))
tried("cache", lambda: pathlib.Path(os.environ["FARM_CACHE_DIR"], "owned").write_text("x"))
tried("own", lambda: pathlib.Path(os.environ.get("XDG_CACHE_HOME", secrets), "mine").write_text("x"))
child = os.fork()
if child == 0:
    tried("leave", os.setsid)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    os.dup2(1, 2)
    time.sleep(90)
sys.stderr.write(json.dumps({**found, "child": child}))
sys.exit(7)
"""


def test_what_the_probe_imports_reaches_nothing_but_a_folder_of_its_own(tmp_path, monkeypatch):
    """No credential, no network, and no process that stays: drivers and delegates are loaded there."""
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "credentials.json").write_text("secret")
    script = NOSY.replace("SECRETS", repr(str(tmp_path)))
    with pytest.raises(ProbeError, match="exit code 7") as caught:
        probe([sys.executable, "-S", "-c", script])
    found = json.loads(re.search(r"{.*}", str(caught.value))[0])
    child = found.pop("child")
    refused = dict.fromkeys(("read", "write", "mode", "network", "cache"), "refused")
    assert found == {**refused, "own": "done"}
    eventually(lambda: not alive(child), "it left a process", 20.0)
    open_to_all = SandboxSettings(on=False)
    with pytest.raises(ProbeError, match='"read": "done"'):
        probe([sys.executable, "-S", "-c", script.replace("sleep(90)", "sleep(0)")], sandbox=open_to_all)


def test_wrong_arguments_are_usage_errors():
    answer = subprocess.run(
        [sys.executable, "-m", "agent.runner", "--nonsense"], capture_output=True, check=False
    )
    assert answer.returncode == 2
    assert b"--probe" in answer.stderr


def test_cli_lists_devices_and_version(tmp_path):
    for verb, said in (("probe", '"host-cpu"'), ("version", f"protocol {PROTOCOL_VERSION}")):
        answer = run("farm-agent", verb, cwd=tmp_path, env=os.environ | CPU_ALONE)
        assert answer.returncode == 0, answer.stderr
        assert said in answer.stdout


def test_gpus_run_side_by_side_only_where_the_operator_says_so_and_never_beside_the_cpu(monkeypatch):
    monkeypatch.delenv("FARM_GPUS_SIDE_BY_SIDE", raising=False)
    assert {exclusion_group("gpu-0", cpu=False), exclusion_group("pocl", cpu=True)} == {"host-cpu"}
    monkeypatch.setenv("FARM_GPUS_SIDE_BY_SIDE", "1")
    assert exclusion_group("gpu-0", cpu=False) == "host-cpu/gpu-0"
    assert exclusion_group("pocl", cpu=True) == "host-cpu"


ANSWERS = """
import json, sys
known = json.loads(sys.argv[sys.argv.index("--known") + 1]) if "--known" in sys.argv else {}
device = {"device_id": "host-cpu", "kind": "cpu", "api": "host", "name": json.dumps(known), "delegates": [],
          "exclusion_group": "host", "environment": {}}
print(json.dumps({"devices": [device], "findings": {"driver-1": "fp16 storage"}}))
"""


def test_findings_about_drivers_are_kept_for_the_next_listing(tmp_path, monkeypatch):
    """Trials take seconds, and each listing has a program cache of its own, which holds none."""
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path / "cache"))
    command, keep = [sys.executable, "-c", ANSWERS], tmp_path / "cache" / "findings.json"
    known = {"driver-1": "fp16 storage"}
    told = [json.loads(probe(command).devices[0].name) for _ in range(2)]
    assert told == [{}, known]
    assert stat.S_IMODE(keep.stat().st_mode) == 0o600
    # A file that somebody damaged costs the time alone.
    for damaged in ("{", json.dumps({"driver-1": 1}), json.dumps({"no id": ""})):
        keep.write_text(damaged)
        assert json.loads(probe(command).devices[0].name) == {}
        assert json.loads(keep.read_text()) == known
    # Where nothing can be kept, each listing makes them.
    monkeypatch.setenv("FARM_CACHE_DIR", "/dev/null/cache")
    assert [json.loads(probe(command).devices[0].name) for _ in range(2)] == [{}, {}]


@pytest.mark.slow
def test_what_is_known_of_a_driver_is_not_tried_again():
    command = [sys.executable, "-m", "agent.runner", "--probe"]
    for known in ({}, {"another driver": "x"}):
        ran = subprocess.run([*command, "--known", json.dumps(known)], capture_output=True, check=True)
        report = ProbeReport.model_validate_json(ran.stdout)
        (key,) = report.findings
    by_hand = json.dumps({key: "by hand"})
    ran = subprocess.run([*command, "--known", by_hand], capture_output=True, check=True)
    (device,) = (d for d in ProbeReport.model_validate_json(ran.stdout).devices if d.api == "opencl")
    assert device.facts[NARROW_NUMBERS_FACT] == "by hand"


def test_a_finding_is_made_once_and_not_kept_beyond_its_driver():
    trials = Trials({"kept": "bf16 storage", "gone": "fp16 storage"})
    made = iter(["int8 products"])
    assert [trials.of(key, lambda: next(made)) for key in ("kept", "new", "new")] == [
        "bf16 storage",
        "int8 products",
        "int8 products",
    ]
    assert trials.found == {"kept": "bf16 storage", "new": "int8 products"}
