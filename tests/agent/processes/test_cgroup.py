"""Who hides from session, descent and mark does not hide from the control group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.processes import cgroup
from agent.processes.descendants import marker_of, processes_of
from agent.processes.left_files import LOG_FILE
from agent.processes.supervisor import Launch, Runner, start
from tests import needs
from tests.agent.embedded_agent import PATIENCE_S, alive, eventually

HIDER = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        child = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
        open(sys.argv[1], "w").write(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-S", "-c", child], {})
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.fixture
def hidden(tmp_path):
    """Start a runner, and the process that it has hidden: another session, another parent, no mark."""
    if cgroup.create("probe-of-the-tests") is None:
        needs.absent("no control groups of version 2 that this user may divide")
    cgroup.remove("probe-of-the-tests")
    noted = tmp_path / "pid"
    command = [sys.executable, "-S", "-c", HIDER, str(noted)]
    runner = Runner.start("attempt-of-hiding", Launch(command, dict(os.environ), tmp_path))
    eventually(lambda: noted.exists() and noted.read_text(), "the runner hides nobody")
    pid = int(noted.read_text())
    eventually(lambda: marker_of(pid) is None, "it still has its mark")
    eventually(lambda: f"PPid:\t{runner.process.pid}" not in Path(f"/proc/{pid}/status").read_text(), "child")
    yield runner, pid
    runner.reap()


def test_a_process_that_hides_is_found_in_its_control_group_and_killed_with_the_rest(hidden):
    runner, pid = hidden
    assert os.getsid(pid) != os.getsid(runner.process.pid)
    assert {pid, runner.process.pid} <= processes_of("attempt-of-hiding", runner.process.pid)
    assert runner.reap() == set()
    assert not alive(pid)
    assert cgroup.members("attempt-of-hiding") == set()


def test_another_agent_finds_and_buries_what_the_first_left(hidden):
    runner, pid = hidden
    os.kill(runner.process.pid, 9)
    runner.process.wait()
    assert pid in processes_of("attempt-of-hiding")
    assert Runner("attempt-of-hiding", runner.process).reap() == set()
    assert not alive(pid)


def test_without_a_group_nothing_is_found_and_nothing_fails():
    assert cgroup.members("never-began") == set()
    cgroup.kill("never-began")
    cgroup.remove("never-began")


def test_a_process_that_cannot_enter_its_group_starts_all_the_same(tmp_path):
    command = [sys.executable, "-S", "-c", ""]
    launch = Launch(command, dict(os.environ), tmp_path, group=tmp_path / "no-group")
    assert start(launch).wait(PATIENCE_S) == 0


def test_a_process_that_nothing_would_count_does_not_start(tmp_path):
    launch = Launch([sys.executable], dict(os.environ), tmp_path, counted_group=tmp_path / "no-group")
    with pytest.raises(subprocess.SubprocessError):
        start(launch)
    assert "sandbox: " in (tmp_path / LOG_FILE).read_text()


def test_only_groups_that_no_process_is_about_to_enter_are_swept(monkeypatch):
    made = cgroup.create("swept")
    if made is None:
        needs.absent("no control groups of version 2 that this user may divide")
    cgroup.sweep()
    assert made.exists()
    monkeypatch.setattr(cgroup, "_YOUNG_S", 0.0)
    cgroup.sweep()
    assert not made.exists()


def test_a_group_is_killed_as_a_whole_by_the_kernel(hidden):
    runner, pid = hidden
    cgroup.kill("attempt-of-hiding")
    assert runner.process.wait(PATIENCE_S) == -signal.SIGKILL
    eventually(lambda: not alive(pid), "a process of the group lives")
