"""The folder in which a user works may be a stranger's: no code and no settings in it count."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.wire.environment import for_agent
from orchestrator.config.home import FarmHome
from orchestrator.dispatch.embedded import EmbeddedDispatcher, agent_command
from orchestrator.sources.pypi import Wheel, download
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.sources.test_sources import MEMBER, build_wheel
from tests.services.known import CPU_ALONE
from tests.sweeps import rarely

MODULES = (
    "pip", "json", "numpy", "agent", "runtime", "orchestrator", "sitecustomize", "usercustomize", "typing",
    "re", "subprocess", "yaml", "typer", "sqlmodel", "pydantic", "alembic", "pyopencl", "encodings",
    "socket", "setup",
)  # fmt: skip
"""Names of modules that the programs import, or that Python or pip look for by themselves."""

SECRETS = {
    "FARM_BROKER_URL": "rediss://:hunter2@lab:6380/0", "FARM_SUBMIT_TOKEN": "hunter2" * 6,
    "FARM_READ_TOKEN": "hunter2" * 6, "AWS_SECRET_ACCESS_KEY": "hunter2", "GITHUB_TOKEN": "hunter2",
}  # fmt: skip
MANIFEST = f"""
version: 1
campaign: c
models:
  - id: m
    source: pypi:tiny-models==1.2!{MEMBER}
delegates:
  cpu: {{kind: cpu}}
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Make a folder full of traps; `tmp_path/sprung` names those that went off."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    sprung = tmp_path / "sprung"
    for name in MODULES:
        text = f"open({str(sprung)!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(text)
        package = folder / "packages" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text)
    url = "index-url = https://127.0.0.1:9/evil\n"
    for name in ("pip.conf", "pip.ini", "setup.cfg", ".pypirc"):
        (folder / name).write_text(f"[global]\n{url}[install]\n{url}[download]\n{url}")
    (folder / "farm.toml").write_text('database_url = "postgresql://evil.example/farm"\n')
    (folder / ".env").write_text("FARM_HOME=/evil\n")
    (folder / "alembic.ini").write_text("[alembic]\nsqlalchemy.url = sqlite:////evil\n")
    (folder / "pyproject.toml").write_text("[tool.pip]\n")
    (folder / ".npmrc").write_text("registry=https://evil.example\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No variable of pip's and no secret but ours; pip has one folder to download from."""
    wheels = tmp_path / "wheels"
    build_wheel(wheels, "1.2", "py3-none-any", {MEMBER: unary_model()})
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "FARM_"))}
    own = {
        "FARM_HOME": str(tmp_path / "home"),
        "HOME": str(tmp_path),
        "FARM_LEASES": str(tmp_path / "leases"),
    }
    return plain | own | CPU_ALONE | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "COLUMNS": "100"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "stored"),
    [
        rarely("farm submit --check models.yaml", 0, False),
        ("farm submit --dry-run models.yaml", 0, True),
        rarely("farm doctor", None, False),
        ("farm-agent start --state ../state", 1, False),
    ],
)
def test_no_program_of_ours_runs_code_of_the_current_folder(
    trap: Path, tmp_path: Path, environment: dict[str, str], words: str, code: int | None, stored: bool
) -> None:
    (trap / "models.yaml").write_text(MANIFEST)
    program, *arguments = words.split()
    ran = subprocess.run(
        [Path(sys.executable).with_name(program), *arguments],
        cwd=trap,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / "sprung").exists(), (tmp_path / "sprung").read_text()
    assert "Traceback" not in ran.stderr
    assert code in (None, ran.returncode), ran.stderr
    assert "evil" not in ran.stdout + ran.stderr
    assert not stored or list((tmp_path / "home" / "store").glob("sha256/*/*"))


def test_pip_starts_isolated_in_a_folder_of_its_own_and_sees_no_secret(
    trap: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environment | SECRETS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FARM_DATABASE_URL", "postgresql://farm:hunter2@db/farm")
    monkeypatch.setenv("PYTHONPATH", str(trap))
    monkeypatch.chdir(trap)
    monkeypatch.setattr(sys, "executable", str(recorder(tmp_path, sys.executable)))
    folder = tmp_path / "download"
    folder.mkdir()
    assert download(Wheel("tiny-models", "1.2"), folder, lambda _: None).is_file()
    assert not (tmp_path / "sprung").exists()
    assert (tmp_path / "seen-folder").read_text().strip() == str(folder)
    seen = (tmp_path / "seen-environment").read_text()
    assert "hunter2" not in seen
    assert "PYTHONPATH" not in seen
    assert "PIP_FIND_LINKS" in seen


def test_the_embedded_agent_starts_in_its_own_folder_and_sees_no_secret(
    trap: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (environment | SECRETS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FARM_DATABASE_URL", "postgresql://farm:hunter2@db/farm")
    monkeypatch.setenv("POCL_DEVICES", "cpu")
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path / 'elsewhere'}:")
    monkeypatch.chdir(trap)
    home = FarmHome(tmp_path / "home")
    home.agent.mkdir(parents=True)
    command = agent_command(home)
    agent = EmbeddedDispatcher([str(recorder(tmp_path, command[0])), *command[1:]], home.agent / "agent.log")
    deadline = time.monotonic() + 60
    while not agent.events(1.0):
        assert time.monotonic() < deadline, "its hello"
    agent.close()
    assert not (tmp_path / "sprung").exists()
    assert (tmp_path / "seen-folder").read_text().strip() == str(home.agent)
    seen = (tmp_path / "seen-environment").read_text().splitlines()
    assert "hunter2" not in str(seen)
    assert "POCL_DEVICES=cpu" in seen
    assert f"FARM_LEASES={tmp_path / 'leases'}" in seen
    assert f"PYTHONPATH={tmp_path / 'elsewhere'}" in seen


def test_a_relative_folder_of_pythonpath_stays_the_folder_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert for_agent({"PYTHONPATH": "lib::/opt/x"})["PYTHONPATH"] == f"{tmp_path / 'lib'}:/opt/x"


def recorder(folder: Path, program: str) -> Path:
    """Write a program that notes its environment and folder, and goes on as `program`."""
    path = folder / "recorder"
    where = shlex.quote(str(folder))
    path.write_text(
        f"#!/bin/sh\nenv > {where}/seen-environment\npwd > {where}/seen-folder\n"
        f'exec {shlex.quote(program)} "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
