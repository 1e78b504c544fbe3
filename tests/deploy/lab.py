"""A lab that the playbook deploys: a server and two machines, an inventory, and releases to deploy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.machines import Machine, ssh_options
from tests.needs import REPOSITORY

SECRETS = {
    "farm_redis_password": "redis0123456789abcdef0123456789abcdef",
    "farm_read_token": "read0123456789abcdef0123456789abcdef",
    "farm_submit_token": "submit0123456789abcdef0123456789abcdef",
}
VAULT_PASSWORD = "the operator's"


@dataclass
class DeployedLab:
    """`folder` has a copy of `ansible/` with an inventory and a vault of its own."""

    server: Machine
    agents: list[Machine]
    folder: Path

    def prepare(self) -> None:
        """Copy the playbooks, write inventory and vault."""
        shutil.copytree(REPOSITORY / "ansible", self.playbooks, ignore=shutil.ignore_patterns("releases"))
        variables = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.server.key),
            "ansible_ssh_common_args": " ".join(ssh_options(self.server.known)),
            "common_update_cache": False,
        }
        server = {"ansible_host": self.server.address, "farm_server_names": [self.server.name]}
        server["farm_server_addresses"] = [self.server.address]
        agents: dict[str, dict[str, Any]] = {m.name: {"ansible_host": m.address} for m in self.agents}
        agents[self.agents[0].name]["farm_opencl"] = ["pocl"]
        groups = {"server": {"hosts": {self.server.name: server}}, "agents": {"hosts": agents}}
        inventory = {"all": {"vars": variables, "children": groups}}
        (self.playbooks / "inventory.yml").write_text(yaml.safe_dump(inventory))
        (self.playbooks / "password").write_text(VAULT_PASSWORD)
        vault = self.playbooks / "group_vars/all/vault.yml"
        vault.write_text(yaml.safe_dump(SECRETS))
        done = self.run("ansible-vault", "encrypt", "--vault-password-file", "password", str(vault))
        assert done.returncode == 0, done.stderr

    @property
    def playbooks(self) -> Path:
        """The copy of `ansible/`."""
        return self.folder / "ansible"

    def release(self, checkout: Path) -> str:
        """Make the release of a checkout; returns its name."""
        ran = self.run(str(checkout / "ansible/make-release"))
        assert ran.returncode == 0, ran.stderr
        made = checkout / "ansible/releases"
        name = (made / "LATEST").read_text()
        (self.playbooks / "releases").mkdir(exist_ok=True)
        for file in (f"{name}.tar", "LATEST"):
            shutil.copy(made / file, self.playbooks / "releases" / file)
        return name

    def play(self, book: str, *options: str, password: str = "password") -> subprocess.CompletedProcess[str]:
        """`ansible-playbook BOOK`."""
        return self.run("ansible-playbook", book, "--vault-password-file", password, *options)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment, in the folder of the playbooks."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {
            "PATH": path,
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_FORCE_COLOR": "0",
            "PYTHON": sys.executable,
        }
        return subprocess.run(
            [program, *arguments],
            cwd=self.playbooks,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def farm(self, *arguments: str, check: bool = True) -> str:
        """`farm` on the server, as its administrator."""
        return self.server.ssh(" ".join(["farm", *arguments]), check=check).stdout

    def cells(self) -> list[dict[str, Any]]:
        """Return the cells of the last campaign."""
        found = json.loads(self.farm("results", "--json", check=False) or "[]")
        assert isinstance(found, list)
        return found

    def until(self, holds: Callable[[], bool], what: str, limit_s: float = 180) -> None:
        """Wait until something holds."""
        end = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < end, f"no {what} after {limit_s:.0f} s"
            time.sleep(2)


def changed(ran: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Return the number of tasks that changed something, by machine, from the recap of a playbook's run."""
    lines = ran.stdout.rpartition("PLAY RECAP")[2].splitlines()
    recaps = [line.split() for line in lines if "changed=" in line]
    return {
        words[0]: int(word.partition("=")[2])
        for words in recaps
        for word in words
        if word.startswith("changed=")
    }
