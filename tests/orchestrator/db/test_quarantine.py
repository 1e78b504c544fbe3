"""Devices whose cells fail one after another get no more, until a health check passes. On both engines."""

from __future__ import annotations

from datetime import timedelta

import pytest

from agent.wire.messages import ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.devices import quarantine
from tests.orchestrator.asked import asked
from tests.orchestrator.db.queue_steps import FLEET, begin, choose, now, read, take_in
from tests.orchestrator.stocked import cells, dispatch, result, stock


@pytest.fixture
def database(any_database):
    return any_database


def test_three_cells_in_a_row_put_a_device_in_quarantine_and_a_health_check_frees_it(database):
    stock(database, asked(tuple("abcd")), FLEET)
    wanted = cells(database)
    for cell in wanted[:3]:
        job = dispatch(database, cell.cell_id)
        before = now()
        take_in(database, result(job, Status.FAILED, ReasonCode.DEVICE_LOST))
    device = read(database, tables.Device, "host-cpu")
    assert device.quarantined_at is not None
    assert device.quarantine_text == "3 cells in a row failed: because of device_lost"
    assert choose(database, "host-cpu", at=before + timedelta(seconds=9)) == ()
    soon = now() + timedelta(seconds=11)
    (check,) = choose(database, "host-cpu", at=soon)
    assert read(database, tables.Cell, check.cell_id).model == "health-check"
    take_in(database, result(begin(database, check)))
    assert read(database, tables.Device, "host-cpu").quarantined_at is None
    (next_cell,) = choose(database, "host-cpu", at=soon)
    assert next_cell.cell_id in {cell.cell_id for cell in wanted}


def test_a_failed_health_check_is_followed_by_a_later_one(database):
    stock(database, asked(("m",)), FLEET)
    with database.write() as session:
        row = session.get_one(tables.Device, "host-cpu")
        quarantine.quarantine(session, row, "by hand", now())
    (check,) = choose(database, "host-cpu", at=now() + timedelta(seconds=11))
    job = begin(database, check)
    before = now()
    take_in(database, result(job, Status.FAILED, ReasonCode.WRONG_OUTPUT))
    assert read(database, tables.Device, "host-cpu").quarantined_at is not None
    assert choose(database, "host-cpu", at=before + timedelta(seconds=50)) == ()
    (again,) = choose(database, "host-cpu", at=now() + timedelta(seconds=61))
    assert again.cell_id != check.cell_id


def test_no_further_try_of_a_check_that_ran_frees_a_device_that_a_person_took_out(database):
    stock(database, asked(("m",)), FLEET)
    with database.write() as session:
        quarantine.quarantine(session, session.get_one(tables.Device, "host-cpu"), "it failed", now())
    (check,) = choose(database, "host-cpu", at=now() + timedelta(seconds=11))
    job = begin(database, check)
    with database.write() as session:
        steering_requests.quarantine(session, "host-cpu", "by hand", now())
    take_in(database, result(job, Status.FAILED, ReasonCode.DEVICE_LOST))
    assert choose(database, "host-cpu", at=now() + timedelta(days=1)) == ()
    assert read(database, tables.Device, "host-cpu").quarantine_text == "by hand"


def test_a_device_that_is_taken_out_until_a_check_passes_while_one_runs_gets_another(database):
    stock(database, asked(("m",)), FLEET)
    with database.write() as session:
        steering_requests.quarantine(session, "host-cpu", "it failed", now(), check=True)
    (check,) = choose(database, "host-cpu", at=now() + timedelta(seconds=11))
    job = begin(database, check)
    with database.write() as session:
        steering_requests.quarantine(session, "host-cpu", "it failed again", now(), check=True)
    take_in(database, result(job))
    assert read(database, tables.Device, "host-cpu").quarantined_at is not None
    (again,) = choose(database, "host-cpu", at=now() + timedelta(seconds=11))
    take_in(database, result(begin(database, again)))
    assert read(database, tables.Device, "host-cpu").quarantined_at is None


def test_a_device_that_has_lost_its_delegates_goes_to_quarantine_without_a_check(database):
    stock(database, asked(("m",)), FLEET)
    with database.write() as session:
        row = session.get_one(tables.Device, "host-cpu")
        row.delegates = []
        quarantine.quarantine(session, row, "it failed", now())
    assert read(database, tables.Device, "host-cpu").quarantined_at is not None
    assert [cell.model for cell in cells(database)] == ["m"]


def test_a_fault_of_the_same_cell_or_of_a_model_is_no_fault_of_the_device(database):
    stock(database, asked(tuple("abcd")), FLEET)
    first, *others = cells(database)
    for _ in range(2):
        take_in(database, result(dispatch(database, first.cell_id), Status.FAILED, ReasonCode.DEVICE_LOST))
    for cell in others:
        take_in(database, result(dispatch(database, cell.cell_id), Status.FAILED, ReasonCode.RUNNER_ERROR))
    device = read(database, tables.Device, "host-cpu")
    assert device.faulty_cells == [first.cell_id]
    assert device.quarantined_at is None


def test_a_device_that_works_again_starts_from_nothing(database):
    stock(database, asked(tuple("abcd")), FLEET)
    a, b, c, d = cells(database)
    for cell in (a, b):
        take_in(database, result(dispatch(database, cell.cell_id), Status.FAILED, ReasonCode.DEVICE_LOST))
    take_in(database, result(dispatch(database, c.cell_id)))
    take_in(database, result(dispatch(database, d.cell_id), Status.FAILED, ReasonCode.DEVICE_LOST))
    assert read(database, tables.Device, "host-cpu").quarantined_at is None
