"""The playbooks as the tests of the lab start them, with its inventory and vault, and without machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.lab import DeployedLab
from tests.deploy.machines import Machine


@pytest.fixture(scope="module")
def unbooted(tmp_path_factory: pytest.TempPathFactory) -> DeployedLab:
    """Return a lab of two machines that nobody boots."""
    folder = tmp_path_factory.mktemp("unbooted")
    addresses = {"lab-server": "192.0.2.1", "rack-1": "192.0.2.2"}
    server, agent = (
        Machine(name, address, folder / "key", folder / "known", "") for name, address in addresses.items()
    )
    lab = DeployedLab(server, [agent], folder)
    lab.prepare()
    return lab


@pytest.mark.parametrize("book", ["site.yml", "restore.yml", "uninstall.yml"])
def test_a_playbook_is_read_with_its_roles(unbooted: DeployedLab, book: str) -> None:
    ran = unbooted.play(book, "--syntax-check")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_broken_role_is_noticed(unbooted: DeployedLab) -> None:
    tasks = Path(unbooted.playbooks, "roles/agent/tasks/main.yml")
    text = tasks.read_text()
    tasks.write_text(text + "\n- name: Do what no module does\n  ansible.builtin.nothing: {}\n")
    try:
        ran = unbooted.play("site.yml", "--syntax-check")
    finally:
        tasks.write_text(text)
    assert ran.returncode != 0
    assert "ansible.builtin.nothing" in ran.stderr
