"""Attacks by another user of the server or of an agent's machine."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.attack.lab import NEIGHBOUR, ROGUE, VICTIM
from tests.needs import absent
from tests.orchestrator.endpoint.http_lab import READ_TOKEN, SUBMIT_TOKEN
from tests.orchestrator.trust.lab import PASSWORD, modes_in

NOBODY = "65534"


@pytest.fixture
def somebody():
    """Return a function that runs a command as a user without rights, and returns its output."""
    if os.geteuid() != 0:
        absent("acting as another user needs root")
    setpriv = shutil.which("setpriv") or absent("no setpriv on this machine")

    def run(*command: str) -> str:
        told = subprocess.run(
            [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        return told.stdout

    return run


@pytest.fixture(scope="module")
def used(lab):
    """Return the lab once it has measured something: there are models, results, logs and a site."""
    if not lab.rows("SELECT 1 FROM attempt WHERE state = 'done' LIMIT 1"):
        lab.measure()
    return lab


def roots(lab) -> list[Path]:
    """Of the farm and of the agents."""
    return [lab.home, lab.state_of(VICTIM), lab.state_of(NEIGHBOUR)]


def test_reading_models_credentials_and_results(used, somebody):
    """Another user can neither read, list nor change anything of the farm or of an agent."""
    places = [str(root) for root in roots(used)]
    assert somebody("find", str(used.folder), "-maxdepth", "1"), "the lab's folder itself is open"
    for right in ("-readable", "-writable", "-executable"):
        assert somebody("find", *places, right) == "", right


def test_modes_of_files_and_folders(used):
    """All of them are their owner's alone, whatever the folders above them allow."""
    modes = {path: mode for root in roots(used) for path, mode in modes_in(root).items()}
    assert {path.name for path in modes} >= {"farm.key", "credentials.json", "journal.db"}
    open_ones = [
        f"{path}: {stat.filemode(mode)}"
        for path, mode in modes.items()
        if mode & 0o077 and "site" not in path.parts
    ]
    assert open_ones == []


def test_secrets_on_command_lines_and_in_environments(used, somebody):
    """No command line shows a secret, and no other user sees an environment."""
    secrets = [PASSWORD, READ_TOKEN, SUBMIT_TOKEN]
    secrets += [used.credentials_of(name).token for name in (VICTIM, NEIGHBOUR, ROGUE)]
    lines = somebody("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "serve" in lines
    assert [secret for secret in secrets if secret in lines] == []
    pids = [str(service.pid) for service in used.services if service.running]
    assert somebody("cat", *(f"/proc/{pid}/environ" for pid in pids)) == ""
