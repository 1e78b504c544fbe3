"""Scenarios 1-5: what a runner can do to its agent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from agent.attempt import runlog
from agent.attempt.lease import try_lease
from tests.faults import forms
from tests.faults.lab import until

WORK = {"seconds": 0.1}
GROUPS = ("subreaper", "group") if forms.has_control_groups() else ("subreaper",)
LIMITS = ("rlimit", "group") if forms.has_memory_groups() else ("rlimit",)


def leftovers(folder: Path) -> list[int]:
    """Return the processes that somebody started for this agent and forgot."""
    mark = str(folder).encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark in words and b"time.sleep(600)" in words:
            found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_scenario_01_a_killed_runner_is_reported_and_its_cell_tried_again(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    agent = lab.agents["agA"]
    lab.submit(3, slow={"seconds": 0.1, "first_seconds": 5})
    killed = {}
    for _ in range(3):
        victim = until(lambda: [f for f in agent.running_attempts() if f.attempt_no == 1], "a first attempt")[
            0
        ]
        os.kill(victim.pid, signal.SIGKILL)
        killed[victim.attempt_id] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        until(lambda pid=victim.pid: not Path(f"/proc/{pid}").exists(), "it is buried", limit_s=10)
    assert lab.finish() == {"done": 3}
    for cell in lab.view.cells():
        first, second = lab.view.attempts(cell.cell_id)
        assert (first.state, first.reason_code) == ("failed", "runner_killed")
        assert second.state == "done"
    lines = runlog.read(agent.state / "runs.log")
    buried = {line.attempt_id: line.time_ns for line in lines if line.event == "gone"}
    took_s = [(buried[attempt_id] - at) / 1e9 for attempt_id, at in killed.items()]
    assert min(took_s) < 1, "the device is free within a second, unless something else has the machine"
    lease = try_lease(Path(agent.environment["FARM_LEASES"]), "agA-0")
    assert lease is not None, "the device's lock is free"
    lease.release()


def test_scenario_02_a_model_that_always_crashes_ends_and_its_device_serves_the_others(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(4, poison={"behave": "crash", **WORK}, good=WORK)
    assert lab.finish() == {"failed": 4, "done": 4}
    for cell in lab.view.cells():
        if cell.delegate == "poison":
            assert cell.reason_code == "crash"
            assert 1 < len(lab.view.attempts(cell.cell_id)) <= 3


def test_scenario_03_a_runner_that_ignores_sigterm_is_killed_at_its_hard_limit(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(1, soft_limit_s=1.0, stuck={"behave": "hang", **WORK})
    stuck = lab.until_running()
    assert lab.finish() == {"failed": 1}
    (first,) = lab.view.attempts()
    assert (first.state, first.reason_code) == ("failed", "timeout")
    assert not Path(f"/proc/{stuck.pid}").exists()
    took_s = (first.ended_at - first.started_at).total_seconds()
    assert took_s >= 11, "SIGKILL came ten seconds after the soft limit"


@pytest.mark.parametrize("form", GROUPS)
def test_scenario_04_a_daemon_that_a_runner_left_behind_is_found_and_killed(fault_lab, form):
    lab = fault_lab
    lab.start_server()
    agent = lab.add_agent("agA", devices=1)
    agent.inside = forms.WITHOUT_GROUPS if form == "subreaper" else ()
    agent.start()
    lab.until_heard("agA")
    lab.submit(3, leaver={"behave": "daemon", **WORK}, good=WORK)
    found = until(lambda: [*map(group_of, leftovers(agent.folder))], "a daemon was left behind")
    assert all(("farm-attempt-" in group) == (form == "group") for group in found if group), found
    assert lab.finish() == {"done": 6}
    until(lambda: not leftovers(agent.folder), "no daemon is left", limit_s=10)


def group_of(pid: int) -> str:
    """Return the control group of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1]
    except (OSError, IndexError):
        return ""


@pytest.fixture
def memory(request):
    """Limit the memory of an agent and its runners; yield a prefix of its command, and its environment."""
    if request.param == "rlimit":
        yield (), {"FARM_RUNNER_MEMORY_BYTES": str(256 << 20)}
        return
    with forms.memory_group(256 << 20) as folder:
        yield forms.inside(folder), {}


@pytest.mark.parametrize("memory", LIMITS, indirect=True)
def test_scenario_05_a_runner_that_runs_out_of_memory_fails_and_the_agent_lives(memory, fault_lab):
    lab = fault_lab
    lab.start_server()
    agent = lab.add_agent("agA", devices=1)
    agent.inside, environment = memory
    agent.start(**environment)
    lab.until_heard("agA")
    pid = agent.pid
    lab.submit(2, hungry={"behave": "hungry", **WORK}, good=WORK)
    assert lab.finish() == {"failed": 2, "done": 2}
    assert {cell.reason_code for cell in lab.view.cells() if cell.delegate == "hungry"} == {"oom"}
    assert agent.running
    assert agent.pid == pid
    assert len(lab.view.attempts()) == 4, "want of memory is not tried again"
