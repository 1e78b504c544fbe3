"""Without control groups, each of session, descent and mark finds who hides from the other two."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from agent.processes import cgroup
from agent.processes.descendants import ATTEMPT_VARIABLE, marker_of, new_mark, processes_of, strays
from agent.processes.supervisor import Launch, Runner, reap
from tests.agent.embedded_agent import alive, eventually

ATTEMPT = "attempt-without-a-group"
HIDER = """
import os, sys, time
noted, way = sys.argv[1:]
if os.fork() == 0:
    if way != "session":
        os.setsid()
    if way == "descent" or os.fork() == 0:
        open(noted + ".part", "w").write(str(os.getpid()))
        os.rename(noted + ".part", noted)
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        os.execve(sleep[0], sleep, dict(os.environ) if way == "mark" else {})
    os._exit(0)
time.sleep(600)
"""


HIDES = "import time; time.sleep(600)"


@pytest.fixture
def hidden(request, tmp_path, monkeypatch):
    """Start a runner, and a process of its attempt that only the way of the parameter leads to."""
    monkeypatch.setattr(cgroup, "own", lambda *controller: None)
    noted = tmp_path / "pid"
    command = [sys.executable, "-S", "-c", HIDER, str(noted), request.param]
    runner = Runner.start(ATTEMPT, Launch(command, dict(os.environ), tmp_path))
    eventually(noted.exists, "the runner hides nobody")
    pid = int(noted.read_text())
    eventually(lambda: (marker_of(pid) == runner.mark) == (request.param == "mark"), "the mark")
    eventually(lambda: (parent(pid) == runner.process.pid) == (request.param == "descent"), "the parent")
    assert (os.getsid(pid) == os.getsid(runner.process.pid)) == (request.param == "session")
    yield runner, pid
    for one in (pid, runner.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    runner.process.wait()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("hidden", ["session", "descent"], indirect=True)
def test_who_is_in_the_session_or_below_the_runner_is_killed_with_it(hidden):
    runner, pid = hidden
    assert pid in processes_of(ATTEMPT, runner.process.pid)
    assert runner.reap() == set()
    assert not alive(pid)


@pytest.mark.parametrize("hidden", ["mark"], indirect=True)
def test_who_left_session_and_descent_is_found_by_its_mark_by_the_next_agent(hidden):
    _, pid = hidden
    assert pid in processes_of(ATTEMPT)
    assert reap(ATTEMPT) == set()
    assert not alive(pid)


def test_who_bears_the_name_of_another_attempt_belongs_to_none(monkeypatch):
    """A runner knows the ids of its neighbours' attempts, and not their marks."""
    neighbour = new_mark("neighbour")
    child = os.fork()
    if child == 0:
        mark = "neighbour:" + "0" * 32
        os.execve(sys.executable, [sys.executable, "-S", "-c", HIDES], {ATTEMPT_VARIABLE: mark})
    try:
        eventually(lambda: (marker_of(child) or "").startswith("neighbour:0"), "the mark")
        assert child in strays([neighbour], [])
        assert child not in strays([neighbour, marker_of(child)], [])
        assert child in processes_of("neighbour")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
