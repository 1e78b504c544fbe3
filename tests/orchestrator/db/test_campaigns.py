from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.plan import MeasurePlan
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.campaigns import farm_state as campaign_progress
from orchestrator.db.queue import picking
from orchestrator.db.results import records
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.policy.preview import expected_s
from tests.orchestrator.asked import CPU, POCL, asked
from tests.orchestrator.stocked import cells, dispatch, planned, result, stock

FOUR = ("a", "b", "c", "d")
CELL_S = expected_s(MeasurePlan(), None)
"""Seconds that a cell is expected to take of which nothing is known."""


def remaining(database, now=None):
    with database.read() as session:
        return campaign_progress.remaining_by_target(session, 1, now or datetime.now(UTC))


def finish(database, cell):
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        ingest.apply(session, result(job), datetime.now(UTC))


def test_an_estimate_adds_up_the_open_cells_of_each_device(database):
    stock(database, asked(FOUR, {"cpu": {}, "gpu": {}}))
    assert remaining(database) == {name: pytest.approx(4 * CELL_S) for name in ("host-cpu", "pocl-0")}


def test_an_estimate_follows_the_pace_of_what_has_ended(database):
    stock(database, asked(FOUR))
    for cell in cells(database)[:3]:
        finish(database, cell)
    assert remaining(database) == {"host-cpu": pytest.approx(12)}, "12 s each, whatever was expected"


def test_time_that_a_running_cell_has_taken_is_not_estimated_again(database):
    stock(database, asked(FOUR))
    before = datetime.now(UTC)
    dispatch(database, cells(database)[0].cell_id)
    now = datetime.now(UTC)
    took_s = (now - before).total_seconds()
    left_s = remaining(database, now + timedelta(seconds=10))["host-cpu"]
    assert left_s == pytest.approx(4 * CELL_S - 10 - took_s / 2, abs=took_s / 2 + 0.01)
    assert remaining(database, now + timedelta(hours=1))["host-cpu"] == pytest.approx(3 * CELL_S)


def test_cells_that_take_turns_share_the_time_that_has_passed(database):
    stock(database, asked(FOUR))
    began = datetime.now(UTC)
    job = dispatch(database, cells(database)[0].cell_id)
    with database.write() as session:
        session.get(tables.Attempt, job.attempt_id).arms = 3
    left_s = remaining(database, began + timedelta(seconds=9))["host-cpu"]
    assert left_s == pytest.approx(4 * CELL_S - 3, abs=1.0)


def find(database, campaign, *, force=False):
    plan = planned(database, campaign, force=force)
    reuse = "never" if force else campaign.reuse
    with database.read() as session:
        found = campaigns.find_unfinished(session, campaigns.content_of(campaign, plan, reuse))
        return None if found is None else found.campaign_id


def test_an_unfinished_campaign_is_found_by_what_was_asked(database):
    campaign_id = stock(database, asked(FOUR))
    assert find(database, asked(FOUR)) == campaign_id
    for other in (
        asked(("a", "b", "c")),
        asked(FOUR, name="other"),
        asked(FOUR, {"cpu": {"threads": 2}}),
        asked(FOUR, {"gpu": {}}),
    ):
        assert find(database, other) is None
    assert find(database, asked(FOUR), force=True) is None


def test_a_campaign_that_is_submitted_again_shows_its_last_submission_and_is_listed_first(database):
    first, second = stock(database, asked(("a",))), stock(database, asked(("b",)))
    later = datetime.now(UTC) + timedelta(hours=1)
    with database.write() as session:
        again = session.exec(select(tables.Campaign).where(tables.Campaign.campaign_id == first)).one()
        campaigns.resume(session, again, later)
    with database.read() as session:
        listed = records.campaigns(session)
    assert [campaign.campaign_id for campaign in listed] == [first, second]
    assert listed[0].submitted_at == later


def test_it_is_found_while_a_cell_is_open_and_not_after(database):
    campaign_id = stock(database, asked(("a", "b")))
    finish(database, cells(database)[0])
    assert find(database, asked(("a", "b"))) == campaign_id
    finish(database, cells(database)[1])
    assert find(database, asked(("a", "b"))) is None


def test_a_cancelled_campaign_is_not_found(database):
    stock(database)
    with database.write() as session:
        row = session.exec(select(tables.Campaign)).one()
        campaigns.cancel_campaign(session, row, datetime.now(UTC))
    assert find(database, asked()) is None


def in_line(database, *device_ids):
    with database.read() as session:
        return [w.cell_id for w in picking.choose(session, device_ids, datetime.now(UTC))]


def test_parked_campaigns_stand_in_no_line(database):
    stock(database, asked(("a",), name="first"))
    stock(database, asked(("b",), name="second"))
    first, second = cells(database)
    assert in_line(database, "host-cpu") == [first.cell_id]
    with database.write() as session:
        campaigns.park_others(session, second.campaign_no)
    assert in_line(database, "host-cpu") == [second.cell_id]


def test_a_retried_cell_lets_others_go_first_until_its_delay_is_over(database):
    stock(database, asked(("a", "b")))
    first, second = cells(database)
    with database.write() as session:
        session.get_one(tables.Cell, first.cell_id).not_before = datetime.now(UTC) + timedelta(hours=1)
    assert in_line(database, "host-cpu") == [second.cell_id]


def test_cells_of_devices_that_are_gone_end_with_the_reason(database):
    stock(database, asked(("a",), {"cpu": {}, "gpu": {}}))
    with database.write() as session:
        hint = {"gpu": "no OpenCL platform"}
        assert assignments.fail_vanished(session, [CPU.device_id], hint, datetime.now(UTC)) == 1
    gpu = cells(database)[1]
    assert (gpu.target, gpu.state, gpu.reason_code) == (POCL.device_id, "unsupported", "no_device")
    assert gpu.reason_text == "device pocl-0 is no longer present: no OpenCL platform"
