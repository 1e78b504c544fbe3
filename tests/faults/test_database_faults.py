"""Scenarios 22-24: the database crashes, is locked by somebody else, or has no room."""

from __future__ import annotations

import sqlite3
import time

import pytest

from tests.faults import truth
from tests.faults.disks import fill, small_disk
from tests.faults.lab import until

WORK = {"seconds": 0.2}


@pytest.fixture
def disk(tmp_path):
    """Mount a file system of 12 MB."""
    with small_disk(tmp_path / "small", "12m") as folder:
        yield folder


@pytest.fixture
def agent_disk(tmp_path):
    """Mount a file system on which an agent has room to work."""
    with small_disk(tmp_path / "small", "120m") as folder:
        yield folder


@pytest.mark.parametrize("form", ["restart", "away"])
def test_scenario_22_postgresql_crashes_and_nothing_with_a_receipt_is_missing(fault_lab, form):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(8, gpu=WORK)
    lab.until_done(3)
    done = {result.attempt_id for result in lab.view.results()}
    lab.postgres.stop("immediate")
    if form == "away":
        for command in ("status", "cancel x", "doctor"):
            assert_one_line_about_the_database(lab.call(*command.split()))
        time.sleep(3)
    lab.postgres.start()
    assert lab.finish() == {"done": 16}
    assert done <= {result.attempt_id for result in lab.view.results()}


def assert_one_line_about_the_database(done):
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in said
    about = [line for line in said.splitlines() if "database" in line and "cannot be reached" in line]
    assert len(about) == 1, said


def test_a_missing_database_or_broker_at_the_start_is_one_line_and_loses_nothing(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(4, gpu={"seconds": 0.4})
    lab.until_done(1)
    assert lab.server.stop() == 0
    lab.postgres.stop("fast")
    lab.server.start()
    assert lab.server.server.end() == 4
    said = lab.server.log.read_text()[lab.server.said_before :]
    assert said.count("cannot be reached") == 1, said
    lab.postgres.start()
    lab.redis.kill()
    lab.start_server()
    until(lambda: lab.server.says("the broker is down"), "the server names the broker")
    lab.submit(1, gpu=WORK)
    assert "broker" in lab.call("status").stdout
    lab.redis.start()
    assert lab.finish() == {"done": 5}


def test_scenario_23_another_program_locks_sqlite_and_everybody_waits(sqlite_lab):
    lab = sqlite_lab.start("agA", devices=1)
    lab.submit(6, gpu=WORK)
    lab.until_done(1)
    rival = sqlite3.connect(lab.database.path, isolation_level=None, timeout=30)
    rival.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    waiting = lab.start_submitting(1, gpu=WORK)
    time.sleep(20)
    rival.execute("ROLLBACK")
    rival.close()
    _told, errors = waiting.communicate(timeout=30)
    assert waiting.returncode == 0, errors
    assert time.monotonic() - began >= 20
    assert lab.finish() == {"done": 7}
    assert "database is locked" not in lab.server.log.read_text()


@pytest.mark.parametrize("kept", ["sqlite_lab", "fault_lab"], ids=["database-and-store", "store"])
def test_scenario_24a_a_full_disk_of_the_server_refuses_work_and_loses_nothing(disk, kept, request):
    lab = request.getfixturevalue(kept)
    lab.live_in(disk / "home")
    lab.start("agA", devices=1)
    lab.submit(6, gpu=WORK)
    lab.until_done(1)
    ballast = fill(disk)
    refused = lab.start_submitting(40, gpu=WORK)
    _out, said = refused.communicate(timeout=60)
    assert refused.returncode != 0
    assert "Traceback" not in said
    assert "space" in said or "full" in said
    time.sleep(3)
    ballast.unlink()
    if not lab.server.running:
        lab.start_server()
    assert lab.finish() == {"done": 6}


def test_scenario_24b_a_full_disk_of_an_agent_refuses_work_and_truncates_nothing(agent_disk, fault_lab):
    lab = fault_lab.start("agB", devices=1)
    agent = lab.add_agent("agA", devices=1, folder=agent_disk / "agA")
    agent.start()
    lab.until_heard("agA")
    lab.submit(8, gpu={"seconds": 0.5})
    until(lambda: any(f.event == "completed" for f in truth.facts([agent.state])), "agA has measured")
    ballast = fill(agent_disk)

    def refused():
        """Return whether a job waits for room, or the agent could not go on and said why."""
        waits = any("no space left" in attempt.phase for attempt in lab.view.attempts())
        return waits or not agent.running

    until(refused, "the agent takes no more work", limit_s=30)
    time.sleep(3)
    before = len(lab.view.attempts())
    time.sleep(2)
    assert len(lab.view.attempts()) - before <= 4, "attempts are not used up"
    ballast.unlink()
    if not agent.running:
        assert "space" in agent.log.read_text() or "full" in agent.log.read_text()
        agent.start()
    assert lab.finish(limit_s=90) == {"done": 16}
