"""Scenarios 6-10 and 32: an agent dies, stops, or is there twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults import truth
from tests.faults.lab import until
from tests.faults.machines import fake_devices

WORK = {"seconds": 0.2}


def die_at(lab, name: str, point: str) -> set[str]:
    """Restart an agent so that it dies at a failpoint, once; start it again when it has. Gives the results
    that it then owed.
    """
    agent = lab.agents[name]
    agent.stop()
    agent.start(FARM_FAILPOINT=f"{point}@{agent.folder / 'died'}")
    lab.submit(4, gpu=WORK)
    until(lambda: not agent.running, f"{name} dies at {point}")
    assert (agent.folder / "died").exists()
    owed = lab.kept(name)
    agent.start()
    return owed


def test_scenario_06_a_killed_agents_runner_dies_with_it_and_the_cell_runs_again(fault_lab):
    lab = fault_lab
    lab.take_time(FARM_LOST_S=40, FARM_PATIENCE_S=20)
    lab.start("agA", devices=1)
    lab.submit(2, gpu={"seconds": 0.2, "first_seconds": 30})
    running = lab.until_running()
    agent = lab.agents["agA"]
    agent.kill()
    until(lambda: not Path(f"/proc/{running.pid}").exists(), "the runner dies with its agent", limit_s=5)
    agent.start()

    def redispatched() -> bool:
        return len(lab.view.attempts(running.cell_id)) == 2

    until(redispatched, "the cell was dispatched again", limit_s=30)
    first = lab.view.attempts(running.cell_id)[0]
    assert (first.state, first.reason_code) == ("failed", "interrupted")
    other = next(cell for cell in lab.view.cells() if cell.cell_id != running.cell_id)
    lab.farm("cancel", other.cell_id)
    assert lab.finish() == {"done": 1, "cancelled": 1}


@pytest.mark.parametrize("point", ["agent.after_result_file", "agent.after_spool"])
def test_scenario_07_a_result_that_was_not_sent_yet_arrives_and_is_not_measured_again(fault_lab, point):
    lab = fault_lab
    # A busy host may take longer to start an agent than the scenario's other times allow for.
    lab.take_time(FARM_LOST_S=40, FARM_PATIENCE_S=20)
    lab.start("agA", devices=1)
    die_at(lab, "agA", point)
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}


@pytest.mark.parametrize("point", ["agent.after_send", "agent.before_receipt"])
def test_scenario_08_a_result_without_a_receipt_is_sent_twice_and_stored_once(fault_lab, point):
    lab = fault_lab
    # A busy host may take longer to start an agent than the scenario's other times allow for.
    lab.take_time(FARM_LOST_S=40, FARM_PATIENCE_S=20)
    lab.start("agA", devices=1)
    owed = die_at(lab, "agA", point)
    assert len(owed) == 1, "it was sent, and is sent again"
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}
    assert len(lab.view.results()) == 4
    assert owed <= {result.attempt_id for result in lab.view.results()}


def test_scenario_09_a_job_that_died_before_the_journal_is_dispatched_again(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    die_at(lab, "agA", "agent.before_journal")
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}


def test_scenario_10_a_stopped_agents_late_result_is_stored_and_never_counted(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(3, gpu={"seconds": 0.2, "first_seconds": 2})
    running = lab.until_running("agA")
    lab.agents["agA"].pause()
    resume_at = time.monotonic() + 3 * float(lab.times["FARM_LOST_S"])
    first = until(
        lambda: [a for a in lab.view.attempts(running.cell_id) if a.reason_code == "agent_lost"],
        "the silent attempt is lost",
    )[0]
    time.sleep(max(0.0, resume_at - time.monotonic()))
    lab.agents["agA"].resume()
    assert lab.finish() == {"done": 6}
    late = next(result for result in lab.view.results() if result.attempt_id == first.attempt_id)
    assert (late.late, late.counted) == (True, False)
    counted = next(r for r in lab.view.results() if r.cell_id == running.cell_id and r.counted)
    assert counted.attempt_id != first.attempt_id
    assert counted.epoch > first.epoch


def test_scenario_10_a_late_result_finds_its_cell_waiting_and_is_not_counted_even_so(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    campaign = lab.submit(1, gpu={"seconds": 0.2, "first_seconds": 2})
    running = lab.until_running("agA")
    agent = lab.agents["agA"]
    agent.pause()
    until(lambda: lab.view.attempts()[0].reason_code == "agent_lost", "the silent attempt is lost")
    lab.farm("queue", "pause", campaign)
    agent.resume()
    until(
        lambda: running.attempt_id in {result.attempt_id for result in lab.view.results()},
        "the late result is stored while its cell waits",
    )
    lab.farm("queue", "resume", campaign)
    assert lab.finish() == {"done": 1}
    counted = {result.attempt_id: result.counted for result in lab.view.results()}
    assert counted.pop(running.attempt_id) is False, "the late result counted"
    assert list(counted.values()) == [True]


def test_scenario_32_the_same_agent_twice_is_refused_and_the_same_host_twice_shares_the_lock(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    agent = lab.agents["agA"]
    before = agent.pid
    twin = type(agent)(agent.node, agent.folder, agent.arguments, {**agent.environment}, name="agA")
    twin.start()
    assert twin.server.end() != 0
    assert "another agent" in agent.log.read_text()
    assert agent.running
    assert agent.pid == before

    copy = lab.add_copy("agA", node="agB")
    copy.start()
    until(lambda: copy.says("another machine serves as agent agA"), "the copy of agA's disk is refused")
    lab.submit(2, gpu=WORK)
    until(lambda: lab.view.counts()["done"] == 2, "agA goes on")
    assert not truth.facts([copy.state]), "the copy measures nothing"
    assert copy.stop() == 0

    beside = lab.add_agent("agB", node="agA", devices=1)
    shared = fake_devices("agA", 1)[0].model_copy(update={"device_id": "agB-0"})
    beside.plug_in(shared)
    beside.start()
    lab.until_heard("agB")
    lab.submit(6, gpu=WORK)
    assert lab.finish() == {"done": 14}
