"""Scenarios 11-14 and 34: the server dies, is there twice, or is stopped with everything else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import IntegrityError

from orchestrator.db.cells import attempts, running_attempts
from orchestrator.db.engine.sessions import Database
from orchestrator.policy.assign import Assignment
from tests.faults.lab import until
from tests.faults.machines import Machine

WORK = {"seconds": 0.1}


def die_at(lab, point: str) -> None:
    """Restart the server so that it dies at a failpoint, once; start it again when it has."""
    lab.server.stop()
    lab.start_server(FARM_FAILPOINT=f"{point}@{lab.folder / 'died'}")
    lab.submit(4, gpu=WORK)
    until(lambda: not lab.server.running, f"farm lab serve dies at {point}")
    assert (lab.folder / "died").exists()
    lab.start_server()


def test_scenario_11_a_job_that_was_committed_and_not_published_is_published_by_the_next_server(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    die_at(lab, "orchestrator.before_publish")
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}


def test_scenario_12_a_job_that_was_published_and_not_marked_runs_once(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    die_at(lab, "orchestrator.after_publish")
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}


@pytest.mark.parametrize("home", ["same", "other"])
def test_scenario_13_a_second_server_ends_with_a_clear_line(fault_lab, home):
    lab = fault_lab.start("agA", devices=1)
    second = Machine(
        lab.network.nodes["services"],
        lab.folder / "second",
        ("farm", "lab", "serve"),
        {**lab.server.environment},
    )
    if home == "other":
        second.environment["FARM_HOME"] = str(lab.folder / "second" / "home")
        second.environment["FARM_LISTEN"] = f"{second.node.address}:8460"
    second.start()
    assert second.server.end() != 0
    said = second.log.read_text()
    assert "schedules for" in said
    assert "already" in said
    assert "Traceback" not in said
    lab.submit(3, gpu=WORK)
    assert lab.finish() == {"done": 3}


def test_scenario_13_two_schedulers_at_once_cannot_both_give_a_device_work(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.agents["agA"].stop()
    lab.server.stop()
    lab.submit(2, gpu=WORK)
    cells = [cell.cell_id for cell in lab.view.cells()]
    device = lab.view.cells()[0].target
    meeting = threading.Barrier(2, timeout=30)

    def give(cell_id: str) -> str:
        rival = Database.connect(lab.postgres.socket_url(lab.database_name), lab.folder)
        try:
            with rival.read() as session:
                assert not running_attempts.running(session, datetime.now(UTC)), "both see a free device"
            meeting.wait()
            with rival.write() as session:
                attempts.begin(session, Assignment(cell_id, device), datetime.now(UTC))
        except IntegrityError:
            return "refused"
        finally:
            rival.close()
        return "given"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(give, cells)) == ["given", "refused"]
    lab.start_server()
    lab.agents["agA"].start()
    assert lab.finish() == {"done": 2}


def test_scenario_14_a_result_whose_transaction_died_is_delivered_again_and_stored_once(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    die_at(lab, "orchestrator.before_ingest_commit")
    assert lab.finish() == {"done": 4}
    assert set(lab.view.starts().values()) == {1}
    assert len(lab.view.results()) == 4


def test_scenario_34_everything_is_stopped_and_started_again_without_a_loss(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(25, gpu={"seconds": 0.15})
    lab.until_done(5)
    assert lab.server.stop() == 0
    assert [agent.stop() for agent in lab.agents.values()] == [0, 0]
    before = lab.view.counts()["done"]
    assert before < 50
    lab.redis.stop()
    lab.postgres.restart("fast")
    lab.redis.start()
    lab.start_server()
    for agent in lab.agents.values():
        agent.start()
    assert lab.finish() == {"done": 50}
    lost = {reason for (state, reason), _ in lab.view.reasons().items() if state == "failed"}
    assert lost <= {"interrupted", "agent_lost"}
