"""`python -m agent.runner --probe`: the host's devices, and what is missing with its remedy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent.devices import ProbeError, ProbeReport, probe
from agent.runner.probe import exclusion_group, platform_slug


def probe_with(**environment: str) -> ProbeReport:
    answer = subprocess.run(
        [sys.executable, "-m", "agent.runner", "--probe"],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
    )
    return ProbeReport.model_validate_json(answer.stdout)


def test_host_without_opencl_says_what_to_install(tmp_path):
    report = probe_with(OCL_ICD_VENDORS=str(tmp_path))
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    (missing,) = report.missing
    assert missing.kind == "gpu"
    assert "pocl-opencl-icd" in missing.reason


def test_a_device_that_its_driver_cannot_compile_for_is_missing_with_the_reason():
    report = probe_with(POCL_EXTRA_BUILD_FLAGS="-mcpu-of-the-future")
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    (missing,) = report.missing
    assert missing.kind == "gpu"
    assert "cannot compile for it; install a newer driver" in missing.reason
    assert missing.reason.endswith("(Invalid build option: -mcpu-of-the-future)")


def test_probe_is_stable():
    assert probe().devices == probe().devices


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
if "--without-opencl" not in sys.argv: ctypes.string_at(0)
from agent.runner.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_driver_that_crashes_costs_its_devices_but_not_the_cpu():
    report = probe([sys.executable, "-c", CRASHES])
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    assert "SIGSEGV" in report.missing[-1].reason


def test_driver_that_hangs_costs_its_devices_but_not_the_cpu():
    report = probe(
        [sys.executable, "-c", CRASHES.replace("ctypes.string_at(0)", "__import__('time').sleep(600)")], 5.0
    )
    assert [device.device_id for device in report.devices] == ["host-cpu"]
    assert "no answer within 5 s" in report.missing[-1].reason


def test_runner_that_cannot_answer_at_all_is_an_error():
    with pytest.raises(ProbeError, match="exit code 7: no luck"):
        probe([sys.executable, "-c", "import sys; sys.stderr.write('no luck\\n'); sys.exit(7)"])


def test_wrong_arguments_are_usage_errors():
    answer = subprocess.run(
        [sys.executable, "-m", "agent.runner", "--nonsense"], capture_output=True, check=False
    )
    assert answer.returncode == 2
    assert b"--probe" in answer.stderr


def test_cli_lists_devices_and_version():
    for verb, said in (("probe", b'"host-cpu"'), ("version", b"protocol 3")):
        answer = subprocess.run(
            [sys.executable, "-c", "from agent.cli import main; main()", verb],
            capture_output=True,
            check=True,
        )
        assert said in answer.stdout


def test_gpus_run_side_by_side_only_where_the_operator_says_so_and_never_beside_the_cpu(monkeypatch):
    monkeypatch.delenv("FARM_GPUS_SIDE_BY_SIDE", raising=False)
    assert {exclusion_group("gpu-0", cpu=False), exclusion_group("pocl", cpu=True)} == {"host-cpu"}
    monkeypatch.setenv("FARM_GPUS_SIDE_BY_SIDE", "1")
    assert exclusion_group("gpu-0", cpu=False) == "host-cpu/gpu-0"
    assert exclusion_group("pocl", cpu=True) == "host-cpu"
