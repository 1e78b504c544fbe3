"""A device belongs to one attempt of the host, until its last process is dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.attempt.lease import LEASES_VARIABLE, lease_folder, try_lease
from tests.agent.embedded_agent import eventually


def is_free(folder: Path, group: str) -> bool:
    lease = try_lease(folder, group)
    if lease is not None:
        lease.release()
    return lease is not None


def test_second_lease_of_a_group_is_refused_until_the_first_is_released(tmp_path):
    first = try_lease(tmp_path, "host-cpu")
    assert first is not None
    assert try_lease(tmp_path, "host-cpu") is None
    other = try_lease(tmp_path, "opencl-nvidia-gpu-0")
    assert other is not None
    first.release()
    second = try_lease(tmp_path, "host-cpu")
    assert second is not None
    second.release()
    other.release()


def test_lease_lives_as_long_as_a_process_that_inherited_it(tmp_path):
    lease = try_lease(tmp_path, "host-cpu")
    assert lease is not None
    holder = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=lease.held)
    lease.release()
    assert try_lease(tmp_path, "host-cpu") is None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    eventually(lambda: is_free(tmp_path, "host-cpu"), "the lock was not freed by the death of its holder")


def test_what_a_killed_agent_left_running_keeps_the_groups_above_it_too(tmp_path):
    lease = try_lease(tmp_path, "host/gpu")
    for descriptor in lease.own:  # those of the agent, without the ones that its runner has inherited
        os.close(descriptor)
    assert try_lease(tmp_path, "host") is None
    assert try_lease(tmp_path, "host/gpu") is None


def test_a_process_that_inherited_it_cannot_free_it(tmp_path):
    lease = try_lease(tmp_path, "host-cpu")
    assert lease is not None
    code = f"import fcntl; [fcntl.flock(one, fcntl.LOCK_UN) for one in {lease.held}]"
    subprocess.run([sys.executable, "-c", code], pass_fds=lease.held, check=True)
    assert try_lease(tmp_path, "host-cpu") is None
    lease.release()
    assert is_free(tmp_path, "host-cpu")


def test_group_name_cannot_leave_the_folder(tmp_path):
    lease = try_lease(tmp_path / "leases", "../../evil group")
    assert lease is not None
    lease.release()
    names = {path.name for path in (tmp_path / "leases").glob("*.lock")}
    assert names == {"farm-...lock", "farm-.._...lock", "farm-.._.._evil_group.lock"}


def test_a_group_excludes_itself_and_those_above_and_below_it_but_not_its_neighbours(tmp_path):
    gpu = try_lease(tmp_path, "host-cpu/gpu-0")
    assert gpu is not None
    assert try_lease(tmp_path, "host-cpu/gpu-0") is None
    assert try_lease(tmp_path, "host-cpu") is None
    beside = try_lease(tmp_path, "host-cpu/gpu-1")
    assert beside is not None
    gpu.release()
    assert try_lease(tmp_path, "host-cpu") is None
    beside.release()
    cpu = try_lease(tmp_path, "host-cpu")
    assert cpu is not None
    assert try_lease(tmp_path, "host-cpu/gpu-1") is None
    cpu.release()


def test_leases_are_host_wide_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv(LEASES_VARIABLE, raising=False)
    assert str(lease_folder()) in ("/run/lock", "/tmp")
    monkeypatch.setenv(LEASES_VARIABLE, str(tmp_path))
    assert lease_folder() == tmp_path


def test_every_user_of_the_host_can_open_a_lock_that_an_agent_with_private_files_made(tmp_path):
    before = os.umask(0o077)
    try:
        lease = try_lease(tmp_path / "leases", "host-cpu")
    finally:
        os.umask(before)
    assert lease is not None
    names = {path.name for path in (tmp_path / "leases").iterdir()}
    assert names == {"farm-host-cpu.lock", "farm-host-cpu.held"}
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "leases", *(tmp_path / "leases").iterdir())]
    assert modes == [0o755, 0o644, 0o644]
    lease.release()


def test_a_link_in_the_place_of_a_lock_is_an_error_and_its_target_stays_free(tmp_path):
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "farm-host-cpu.lock").symlink_to(target)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match="symbolic"):
        try_lease(tmp_path / "leases", "host-cpu/gpu-0")
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_an_error_below_a_group_frees_the_group(tmp_path):
    (tmp_path / "farm-host-cpu_gpu-0.lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="symbolic"):
        try_lease(tmp_path, "host-cpu/gpu-0")
    cpu = try_lease(tmp_path, "host-cpu")
    assert cpu is not None
    cpu.release()


def test_only_a_process_that_is_given_the_lock_has_it(tmp_path):
    for _ in ("the file is new", "the file is there"):
        lease = try_lease(tmp_path, "host-cpu")
        assert lease is not None
        assert not any(os.get_inheritable(descriptor) for descriptor in lease.descriptors)
        sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
        with subprocess.Popen(sleeping, close_fds=False) as stranger:
            lease.release()
            eventually(lambda: is_free(tmp_path, "host-cpu"), "a child that was not given the lock has it")
            stranger.kill()


def test_locks_lie_where_this_user_may_write(tmp_path, monkeypatch):
    monkeypatch.delenv(LEASES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "access", lambda folder, _mode: str(folder) == "/tmp")
    assert str(lease_folder()) == "/tmp"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert str(lease_folder()) == "/tmp"
