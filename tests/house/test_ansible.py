"""The playbooks pass ansible-lint's strictest profile; the unit that they install is the example's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

ANSIBLE = REPOSITORY / "ansible"


@pytest.mark.exhaustive
def test_ansible_lint_has_nothing_to_say(tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_HOME": str(tmp_path),
    }
    ran = subprocess.run(
        ["ansible-lint", "--offline", "--nocolor"],
        cwd=ANSIBLE,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Profile 'production' was required, and it passed" in ran.stderr


def test_the_agent_s_unit_is_the_example_s_in_all_that_confines_it() -> None:
    """The playbook's unit has more: its paths, its addresses, and no netlink."""
    example = _settings(REPOSITORY / "examples/farm-agent.service")
    deployed = _settings(ANSIBLE / "roles/agent/templates/farm-agent.service.j2")
    differs = {name for name in example if example[name] != deployed.get(name)}
    assert differs == {"ExecStart", "ExecStartPre", "RestrictAddressFamilies"}


def _settings(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found
