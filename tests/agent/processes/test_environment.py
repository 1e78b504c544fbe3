"""The processes of an agent find what they need in their environment, and nobody's secrets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.devices import probe
from agent.processes.environment import for_link, for_runner
from agent.processes.sandbox.boundary import SandboxSettings
from agent.transport.process import LinkProcess
from agent.wire.environment import EXTRA_VARIABLE
from tests.agent.embedded_agent import eventually, job

SECRETS = {
    "FARM_DATABASE_URL": "postgresql://farm:hunter2@db/farm",
    "FARM_BROKER_URL": "rediss://:hunter2@lab:6380/0",
    "FARM_SUBMIT_TOKEN": "hunter2",
    "FARM_READ_TOKEN": "hunter2",
    "FARM_ENROL_TOKEN": "hunter2",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "GITHUB_TOKEN": "hunter2",
    "NVIDIA_API_KEY": "hunter2",
    "TF_VAR_password": "hunter2",
    "PGPASSWORD": "hunter2",
    "SSH_AUTH_SOCK": "/run/user/1000/hunter2",
    "HTTPS_PROXY": "http://ana:hunter2@proxy:3128",
}
NEEDED = {
    "LANG": "C.UTF-8",
    "LC_NUMERIC": "C",
    "TZ": "UTC",
    "LD_LIBRARY_PATH": "/opt/driver/lib",
    "OCL_ICD_VENDORS": "/etc/OpenCL/vendors",
    "POCL_DEVICES": "cpu",
    "CUDA_VISIBLE_DEVICES": "0",
    "RUSTICL_ENABLE": "llvmpipe",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the environment with the secrets of a server and the settings of drivers."""
    for name, value in {**SECRETS, **NEEDED}.items():
        monkeypatch.setenv(name, value)


def test_runner_gets_what_drivers_need_and_no_secret(filled, start_agent, stored):
    script = Path(__file__).with_name("hostile_runners.py")
    agent = start_agent(runner=[sys.executable, str(script), "environment"])
    seen = agent.run(job(stored)).facts
    assert NEEDED.items() <= seen.items()
    assert not SECRETS.keys() & seen.keys()
    assert "hunter2" not in str(seen)


def test_probe_gets_no_secret(filled, tmp_path, probed):
    script = f"env > {tmp_path}/seen; {probed[2]}"
    allowed = SandboxSettings(write=(tmp_path,))
    assert probe(["/bin/sh", "-c", script, probed[3]], sandbox=allowed).devices
    seen = (tmp_path / "seen").read_text()
    assert "POCL_DEVICES=cpu" in seen
    assert "hunter2" not in seen


def test_link_gets_its_certificates_and_no_secret(filled, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/lab/ca.pem")
    link = LinkProcess(["/bin/sh", "-c", "env; exec sleep 60"], tmp_path, 60.0, "rack-3")
    link.tend()
    try:
        log = tmp_path / "log"
        eventually(lambda: log.exists() and "SSL_CERT_FILE" in log.read_text(), "the link wrote nothing")
        assert "SSL_CERT_FILE=/etc/lab/ca.pem" in log.read_text()
        assert "hunter2" not in log.read_text()
    finally:
        link.close()


def test_a_variable_that_the_user_names_is_handed_on_to_the_runner_and_from_there():
    inherited = {
        "PATH": "/usr/bin",
        "DRIVER_OF_MINE": "fast",
        "OTHER": "1",
        EXTRA_VARIABLE: "DRIVER_OF_MINE, X",
    }
    runner = for_runner(inherited)
    assert runner == {"PATH": "/usr/bin", "DRIVER_OF_MINE": "fast", EXTRA_VARIABLE: "DRIVER_OF_MINE, X"}
    assert for_runner(runner) == runner
    assert for_link(inherited) == runner


def test_a_name_that_only_begins_like_a_listed_one_is_not_handed_on():
    assert for_runner({"HOME": "/root", "HOMEBREW_GITHUB_API_TOKEN": "hunter2", "PATHS": "x"}) == {
        "HOME": "/root"
    }
