"""A user for each attempt: one that no process has; where it cannot be given mounts, it is said."""

from __future__ import annotations

import os
import subprocess

import pytest

from agent.processes.sandbox import survey as surveys
from agent.processes.sandbox.limits import USERS, Users
from agent.processes.sandbox.namespaces import Namespaces

TAKEN = 61990


def test_a_user_that_has_a_process_is_not_given_to_another_attempt():
    if os.getuid() != 0:
        pytest.skip("only root starts a process of another user")
    with subprocess.Popen(["/bin/sleep", "60"], user=TAKEN) as process:
        try:
            assert {Users(TAKEN, TAKEN + 1).free() for _ in range(10)} == {TAKEN + 1}
            with pytest.raises(OSError, match="every user id of 61990-61990 runs a process; give more"):
                Users(TAKEN, TAKEN).free()
        finally:
            process.kill()


def test_users_without_mounts_are_named_and_not_used(monkeypatch):
    monkeypatch.setattr(surveys, "_namespaces", lambda: (Namespaces.DIRECT, ""))
    monkeypatch.setattr(surveys, "_as_another", lambda user: "Invalid argument")
    found = surveys.survey.__wrapped__(USERS)
    assert not found.own_user
    assert any(
        text.startswith("a user of its own (no mounts for another user: Inv") for text in found.without
    )
