"""The playbook's role `users` against a real farm: users appear, change and go, and no token is told."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REPOSITORY

PLAY = """\
- name: The server has its users
  hosts: localhost
  connection: local
  gather_facts: false
  roles: [users]
"""
USERS = [
    {"name": "ana"},
    {"name": "nightly", "scopes": ["submit", "read"], "expires": "90d"},
    {"name": "bob", "state": "absent"},
]


class Server:
    """A farm on this machine, and the play that declares its users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = Path(sys.executable).parent
        self.farm = str(programs / "farm")
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_ROLES_PATH": str(REPOSITORY / "ansible/roles"),
            "FARM_HOME": str(folder / "home"),
            "FARM_ENDPOINT": "http://127.0.0.1:8460",
        }
        (folder / "play.yml").write_text(PLAY)

    def play(self, users: list[dict[str, object]], *options: str) -> str:
        given = {
            "farm_users": users,
            "users_program": self.farm,
            "users_lines": str(self.folder / "lines"),
            "ansible_python_interpreter": sys.executable,
        }
        command = [
            "ansible-playbook",
            "-i",
            "localhost,",
            "play.yml",
            "-e",
            json.dumps(given),
            "--diff",
            "-vvv",
        ]
        ran = subprocess.run(
            [*command, *options], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def users(self) -> dict[str, tuple[str, list[str]]]:
        listed = subprocess.run(
            [self.farm, "lab", "users", "list", "--json"],
            env=self.environment,
            capture_output=True,
            check=True,
        )
        return {user["user"]: (user["state"], user["scopes"]) for user in json.loads(listed.stdout)}


@pytest.mark.exhaustive
def test_users_appear_change_and_go_once_and_no_token_is_told(tmp_path: Path) -> None:
    server = Server(tmp_path)
    told = server.play(USERS)
    assert server.users() == {
        "ana": ("valid", ["read", "submit", "cancel-own"]),
        "nightly": ("valid", ["read", "submit"]),
    }
    lines = {path.name: path.read_text() for path in (tmp_path / "lines").iterdir()}
    assert set(lines) == {"ana", "nightly"}
    assert stat.S_IMODE((tmp_path / "lines/ana").stat().st_mode) == 0o600
    for line in lines.values():
        assert line.startswith("export FARM_URL=http://127.0.0.1:8460 FARM_TOKEN=")
        assert line.rpartition("=")[2].strip() not in told

    assert "changed=0" in server.play(USERS), "a second run changes nothing"
    assert {path.name: path.read_text() for path in (tmp_path / "lines").iterdir()} == lines

    changed = [{"name": "ana", "scopes": ["read"]}, {"name": "nightly", "state": "absent"}]
    told = server.play(changed)
    assert server.users() == {"ana": ("valid", ["read"]), "nightly": ("revoked", ["read", "submit"])}
    assert [path.name for path in (tmp_path / "lines").iterdir()] == ["ana"]
    assert (tmp_path / "lines/ana").read_text().rpartition("=")[2].strip() not in told
    assert "changed=0" in server.play(changed, "--check")
