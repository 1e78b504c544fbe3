"""Scenarios 22-24: the database crashes, is locked by somebody else, or has no room."""

from __future__ import annotations

import sqlite3
import time

import pytest

from tests.faults.disks import fill, small_disk
from tests.faults.lab import until

WORK = {"seconds": 0.2}


@pytest.fixture
def disk(tmp_path):
    """A file system of 12 MB."""
    with small_disk(tmp_path / "small", "12m") as folder:
        yield folder


@pytest.mark.parametrize("pause_s", [0.0, 5.0], ids=["restart", "away"])
def test_scenario_22_postgresql_crashes_and_nothing_with_a_receipt_is_missing(fault_lab, pause_s):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(8, gpu=WORK)
    lab.until_done(3)
    done = {result.attempt_id for result in lab.view.results()}
    lab.postgres.restart("immediate", pause_s=pause_s)
    assert lab.finish() == {"done": 16}
    assert done <= {result.attempt_id for result in lab.view.results()}


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


def test_scenario_24a_a_full_disk_of_the_server_refuses_work_and_loses_nothing(disk, sqlite_lab):
    lab = sqlite_lab
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


def test_scenario_24b_a_full_disk_of_an_agent_refuses_work_and_truncates_nothing(disk, fault_lab):
    lab = fault_lab.start("agB", devices=1)
    agent = lab.add_agent("agA", devices=1, folder=disk / "agA")
    agent.start()
    lab.until_heard("agA")
    lab.submit(8, gpu=WORK)
    lab.until_done(2)
    ballast = fill(disk)
    time.sleep(4)
    ballast.unlink()
    if not agent.running:
        agent.start()

    def settled() -> bool:
        return not lab.view.open_cells()

    until(settled, "every cell has ended", limit_s=90)
    counts = lab.finish()
    assert counts["done"] >= 8, "the other agent was not touched"
    text = agent.log.read_text()
    assert "space" in text or "full" in text
