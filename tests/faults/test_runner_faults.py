"""Scenarios 1-5: what a runner can do to its agent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from agent.lease import try_lease
from tests.faults.lab import until

WORK = {"seconds": 0.1}


def leftovers(folder: Path) -> list[int]:
    """Processes that somebody started for this agent and forgot."""
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


def test_scenario_01_a_killed_runner_is_reported_and_its_cell_tried_again(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(3, slow={"seconds": 0.1, "first_seconds": 2})
    killed = lab.until_running()
    os.kill(killed.pid, signal.SIGKILL)
    agent = lab.agents["agA"]

    def moved_on() -> bool:
        return any(fact.attempt_id != killed.attempt_id for fact in agent.running_attempts())

    until(moved_on, "the device is free and measures again", limit_s=5)
    assert lab.finish() == {"done": 3}
    first, second = lab.view.attempts(killed.cell_id)
    assert (first.state, first.reason_code) == ("failed", "runner_killed")
    assert second.state == "done"
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
    lab.submit(1, soft_limit_s=1.0, stuck={"behave": "hang", "first_only": True, **WORK})
    stuck = lab.until_running()
    assert lab.finish() == {"done": 1}
    first, _second = lab.view.attempts()
    assert (first.state, first.reason_code) == ("failed", "timeout")
    assert not Path(f"/proc/{stuck.pid}").exists()
    took_s = (first.ended_at - first.started_at).total_seconds()
    assert took_s >= 11, "SIGKILL came ten seconds after the soft limit"


def test_scenario_04_a_daemon_that_a_runner_left_behind_is_found_and_killed(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(3, leaver={"behave": "daemon", **WORK}, good=WORK)
    until(lambda: leftovers(lab.agents["agA"].folder), "a daemon was left behind")
    assert lab.finish() == {"done": 6}
    until(lambda: not leftovers(lab.agents["agA"].folder), "no daemon is left", limit_s=10)


def test_scenario_05_a_runner_that_runs_out_of_memory_fails_and_the_agent_lives(fault_lab):
    lab = fault_lab
    lab.start_server()
    agent = lab.add_agent("agA", devices=1)
    agent.start(FARM_RUNNER_MEMORY_BYTES=str(256 << 20))
    lab.until_heard("agA")
    lab.submit(2, hungry={"behave": "hungry", **WORK}, good=WORK)
    assert lab.finish() == {"failed": 2, "done": 2}
    assert {cell.reason_code for cell in lab.view.cells() if cell.delegate == "hungry"} == {"oom"}
    assert agent.running
    assert len(lab.view.attempts()) == 4, "want of memory is not tried again"
