"""A runner reaches the listed files and no others."""

from __future__ import annotations

import sys

from agent.processes.sandbox import landlock
from agent.processes.sandbox.reach import Reach


def test_of_a_checkout_the_modules_are_readable_and_what_lies_beside_them_is_not(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/farm.key").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    rules = Reach([], {}, [], []).rules(own_tmp=False, own_shm=False, changes_proc=False)
    found = {path: rights for path, rights in rules if path.is_relative_to(tmp_path)}
    assert found == {tmp_path: landlock.LIST, tmp_path / "package": landlock.READ}
