from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy.exc import IntegrityError
from sqlmodel import select

from agent.wire.messages import Heartbeat, JobRefused, Reason, ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns, steering_requests
from orchestrator.db.cells import attempts, running_attempts
from orchestrator.db.scheduling import ingest
from orchestrator.policy.attempt_ends import MAX_ATTEMPTS
from orchestrator.policy.lifecycle import IllegalMoveError
from tests.orchestrator.asked import CPU, POCL, asked
from tests.orchestrator.stocked import cells, dispatch, result, stock


def apply(database, message):
    with database.write() as session:
        return ingest.apply(session, message, datetime.now(UTC))


def give_up(database, job, code=ReasonCode.AGENT_LOST):
    with database.write() as session:
        ingest.give_up(session, job.attempt_id, Reason(code=code, text="gone"), datetime.now(UTC))


def stored(database):
    with database.read() as session:
        return [(r.attempt_id, r.counted, r.late) for r in session.exec(select(tables.Result))]


@pytest.fixture
def cell(database):
    stock(database)
    return cells(database)[0]


def state_of(database):
    return cells(database)[0].state


def test_a_result_counts_once_however_often_it_comes(database, cell):
    job = dispatch(database, cell.cell_id)
    message = result(job)
    assert apply(database, message) == "counted"
    assert apply(database, message) == "duplicate"
    assert apply(database, message.model_copy(update={"status": Status.FAILED})) == "conflict"
    assert stored(database) == [(job.attempt_id, True, False)]
    assert state_of(database) == "done"
    assert cells(database)[0].shown_attempt_id == job.attempt_id


def test_a_result_may_come_before_the_word_that_it_started(database, cell):
    job = dispatch(database, cell.cell_id, start=False)
    assert apply(database, result(job)) == "counted"
    assert state_of(database) == "done"


@pytest.mark.parametrize(
    "said", [{}, {"status": Status.FAILED, "code": ReasonCode.WRONG_OUTPUT}], ids=["done", "failed"]
)
def test_what_a_runner_says_of_its_machine_is_its_own_results_alone(database, said):
    stock(database, asked(("a",), {"gpu": {}}))
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    with database.read() as session:
        before = session.get_one(tables.Device, job.device_id)
    assert apply(database, result(job, **said, environment={"driver": "3.2"})) == "counted"
    with database.read() as session:
        assert session.get_one(tables.Device, job.device_id).environment_id == before.environment_id
        its = session.get_one(tables.Result, job.attempt_id).environment_id
        assert session.get_one(tables.Environment, its).fields == {"driver": "3.2"}


def test_a_failed_attempt_is_kept_and_the_cell_tries_again(database, cell):
    first = dispatch(database, cell.cell_id)
    assert apply(database, result(first, Status.FAILED, ReasonCode.CRASH)) == "superseded"
    assert state_of(database) == "queued"
    second = dispatch(database, cell.cell_id)
    assert (second.attempt_no, second.epoch) == (2, first.epoch + 1)
    assert apply(database, result(second)) == "counted"
    assert stored(database) == [(first.attempt_id, False, False), (second.attempt_id, True, False)]


def test_a_result_of_an_old_epoch_is_late_and_never_counted(database, cell):
    first = dispatch(database, cell.cell_id)
    give_up(database, first)
    second = dispatch(database, cell.cell_id)
    with database.read() as session:
        before = session.get_one(tables.Device, first.device_id).environment_id
    assert apply(database, result(first, p50=0.5, environment={"driver": "3.2"})) == "late"
    with database.read() as session:
        assert session.get_one(tables.Device, first.device_id).environment_id == before
    assert state_of(database) == "running"
    assert apply(database, result(second)) == "counted"
    assert stored(database) == [(first.attempt_id, False, True), (second.attempt_id, True, False)]


def test_a_result_that_was_spooled_while_its_attempt_was_given_up_still_counts(database, cell):
    job = dispatch(database, cell.cell_id)
    give_up(database, job)
    assert state_of(database) == "queued"
    assert apply(database, result(job)) == "counted"
    assert state_of(database) == "done"


def test_a_spooled_result_counts_for_a_cell_that_a_user_had_tried_again(database, cell):
    for _ in range(MAX_ATTEMPTS):
        job = dispatch(database, cell.cell_id)
        give_up(database, job)
    assert state_of(database) == "failed"
    with database.write() as turn:
        assert steering_requests.retry(turn, cell.cell_id, datetime.now(UTC), failed_only=True) == 1
    assert apply(database, result(job)) == "counted"
    assert state_of(database) == "done"


def test_a_spooled_result_is_late_once_the_device_had_another_attempt(database):
    stock(database, asked(("a", "b")))
    one, two = cells(database)
    job = dispatch(database, one.cell_id)
    give_up(database, job)
    dispatch(database, two.cell_id)
    assert apply(database, result(job)) == "late"


def test_a_timeout_is_not_overridden(database, cell):
    job = dispatch(database, cell.cell_id)
    give_up(database, job, ReasonCode.TIMEOUT)
    assert apply(database, result(job)) == "late"


@pytest.mark.parametrize("field", ["epoch", "cell_id", "device_id"])
def test_a_message_that_contradicts_its_attempt_is_never_counted(database, cell, field):
    job = dispatch(database, cell.cell_id)
    wrong = {"epoch": 99, "cell_id": "other", "device_id": "other"}[field]
    assert apply(database, result(job).model_copy(update={field: wrong})) == "late"
    assert state_of(database) == "running"


def test_an_unknown_attempt_changes_nothing(database, cell):
    job = dispatch(database, cell.cell_id).model_copy(update={"attempt_id": "never-seen"})
    assert apply(database, result(job)) == "unknown"
    assert stored(database) == []


def test_a_third_lost_attempt_ends_the_cell(database, cell):
    for _ in range(3):
        give_up(database, dispatch(database, cell.cell_id))
    ended = cells(database)[0]
    assert (ended.state, ended.reason_code) == ("failed", "agent_lost")
    with pytest.raises(IllegalMoveError):
        dispatch(database, cell.cell_id)


def test_a_refused_job_ends_its_attempt_with_the_reason(database, cell):
    job = dispatch(database, cell.cell_id, start=False)
    reason = Reason(code=ReasonCode.RUNNER_ERROR, text="no such device")
    refused = JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason)
    with database.write() as session:
        ingest.refuse(session, refused, datetime.now(UTC))
    assert cells(database)[0].reason_text == "no such device"


def test_what_is_said_of_an_older_epoch_changes_nothing(database, cell):
    job = dispatch(database, cell.cell_id, start=False)
    old, now = job.epoch - 1, datetime.now(UTC)
    reason = Reason(code=ReasonCode.RUNNER_ERROR, text="no such device")
    with database.write() as turn:
        ingest.refuse(turn, JobRefused(attempt_id=job.attempt_id, epoch=old, reason=reason), now)
        assert not attempts.start(turn, job.attempt_id, old, now)
        beat = Heartbeat(attempt_id=job.attempt_id, epoch=old, seq=1, phase="measure")
        assert attempts.note_heartbeat(turn, beat, now) == "stale"
    assert state_of(database) == "dispatched"
    with database.write() as turn:
        ingest.refuse(turn, JobRefused(attempt_id="unknown", epoch=1, reason=reason), now)
        assert attempts.start(turn, job.attempt_id, job.epoch, now)
    assert state_of(database) == "running"


def test_a_failure_that_comes_after_its_attempt_was_given_up_ends_nothing(database, cell):
    job = dispatch(database, cell.cell_id)
    give_up(database, job)
    assert apply(database, result(job, Status.CANCELLED, ReasonCode.CANCELLED)) == "late"
    assert apply(database, result(job)) == "conflict"
    assert state_of(database) == "queued"


def test_a_result_does_not_count_once_its_cell_runs_on_another_device(database):
    stock(database, asked(("a",), {"cpu": {}, "litert": {}}))
    one, *_ = cells(database)
    job = dispatch(database, one.cell_id)
    give_up(database, job)
    other = next(device.device_id for device in (CPU, POCL) if device.device_id != job.device_id)
    dispatch(database, one.cell_id, other)
    assert apply(database, result(job)) == "late"
    with database.read() as session:
        kinds = [event.kind for event in session.exec(select(tables.Event)) if event.cell_id == one.cell_id]
    assert kinds[-1] == "late"


def test_an_attempt_that_is_given_up_raises_the_epoch_of_its_device(database, cell):
    job = dispatch(database, cell.cell_id)
    with database.write() as turn:
        reason = Reason(code=ReasonCode.AGENT_LOST, text="gone")
        ingest.lose(turn, job.attempt_id, reason, datetime.now(UTC))
    assert state_of(database) == "queued"
    assert apply(database, result(job)) == "late"


def test_what_has_ended_or_was_never_there_cannot_be_given_up_or_refused(database, cell):
    job = dispatch(database, cell.cell_id)
    assert apply(database, result(job)) == "counted"
    give_up(database, job)
    give_up(database, job.model_copy(update={"attempt_id": "unknown"}))
    reason = Reason(code=ReasonCode.RUNNER_ERROR, text="no such device")
    with database.write() as turn:
        refused = JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason)
        ingest.refuse(turn, refused, datetime.now(UTC))
    assert state_of(database) == "done"


def test_a_result_of_an_attempt_that_its_agent_refused_is_late_though_the_cell_waits(database, cell):
    job = dispatch(database, cell.cell_id)
    reason = Reason(code=ReasonCode.ARTIFACT, text="the model is damaged here")
    with database.write() as turn:
        refused = JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason)
        ingest.refuse(turn, refused, datetime.now(UTC))
    assert state_of(database) == "queued"
    assert apply(database, result(job)) == "late"


@pytest.mark.parametrize("begun", [False, True])
def test_a_result_of_an_attempt_that_the_farm_stopped_counts_until_another_begins(database, cell, begun):
    job = dispatch(database, cell.cell_id)
    with database.write() as turn:
        attempts.ask_to_stop(turn, [job.attempt_id])
    give_up(database, job, ReasonCode.INTERRUPTED)
    assert state_of(database) == "queued"
    if begun:
        dispatch(database, cell.cell_id)
    assert apply(database, result(job)) == ("late" if begun else "counted")


@pytest.mark.parametrize("code", [ReasonCode.AGENT_LOST, ReasonCode.RUNNER_ERROR, ReasonCode.TIMEOUT])
def test_an_attempt_that_the_farm_stopped_and_that_ends_without_a_result_is_no_failure(database, cell, code):
    for _ in range(MAX_ATTEMPTS):
        job = dispatch(database, cell.cell_id)
        with database.write() as turn:
            attempts.ask_to_stop(turn, [job.attempt_id])
        give_up(database, job, code)
        assert state_of(database) == "queued"
    with database.read() as session:
        assert session.get_one(tables.Device, job.device_id).faulty_cells == []
    assert apply(database, result(dispatch(database, cell.cell_id))) == "counted"


def test_a_failure_of_a_cell_that_was_cancelled_does_not_count(database, cell):
    job = dispatch(database, cell.cell_id)
    with database.write() as turn:
        turn.cell(cell.cell_id).cancel_asked_at = datetime.now(UTC)
    assert apply(database, result(job, Status.FAILED, ReasonCode.WRONG_OUTPUT)) == "superseded"
    assert state_of(database) == "cancelled"
    assert stored(database) == [(job.attempt_id, False, False)]


@pytest.mark.parametrize("start", [False, True], ids=["dispatched", "running"])
def test_a_killed_scheduler_leaves_interrupted_attempts(database, cell, start):
    dispatch(database, cell.cell_id, start=start)
    with database.write() as session:
        assert ingest.recover(session, datetime.now(UTC)) == 1
    with database.read() as session:
        (attempt,) = session.exec(select(tables.Attempt))
        assert (attempt.state, attempt.reason_code) == ("failed", "interrupted")
    assert state_of(database) == "queued"


def test_cancelling_ends_waiting_cells_at_once_and_running_ones_with_their_attempt(database):
    campaign_id = stock(database, asked(("a", "b")))
    running, waiting = cells(database)
    job = dispatch(database, running.cell_id)
    with database.write() as session:
        row = session.exec(select(tables.Campaign)).one()
        assert row.campaign_id == campaign_id
        assert campaigns.cancel_campaign(session, row, datetime.now(UTC)) == 2
        (live,) = running_attempts.running(session, datetime.now(UTC))
        assert live.cancel_asked
    assert [c.state for c in cells(database)] == ["running", "cancelled"]
    assert waiting.cell_id == cells(database)[1].cell_id
    apply(database, result(job, Status.CANCELLED, ReasonCode.CANCELLED))
    assert [c.state for c in cells(database)] == ["cancelled", "cancelled"]


def test_a_result_that_meets_a_cancel_ends_done_and_only_done(database, cell):
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        row = session.get_one(tables.Cell, cell.cell_id)
        campaigns.cancel_cells(session, [row], datetime.now(UTC))
    apply(database, result(job))
    assert state_of(database) == "done"
    assert apply(database, result(job, Status.CANCELLED, ReasonCode.CANCELLED)) == "conflict"
    assert state_of(database) == "done"


@pytest.mark.parametrize(
    "same",
    ["cell_id", "device_id", "exclusion_group"],
)
def test_the_database_itself_refuses_a_second_live_attempt(database, same):
    stock(database, asked(("a", "b"), {"cpu": {}, "gpu": {}}))
    first = dispatch(database, cells(database)[0].cell_id)
    with database.read() as session:
        live = session.get_one(tables.Attempt, first.attempt_id)
        fields = {
            "cell_id": cells(database)[3].cell_id,
            "device_id": "pocl-0",
            "exclusion_group": "elsewhere",
        }
        fields[same] = getattr(live, same)
    with pytest.raises(IntegrityError, match=f"attempt.{same}"), database.write() as session:
        session.add(
            tables.Attempt(
                attempt_id="second",
                attempt_no=7,
                epoch=9,
                state="dispatched",
                dispatched_at=datetime.now(UTC),
                **fields,
            )
        )


def test_the_database_itself_refuses_a_second_counted_result(database, cell):
    job = dispatch(database, cell.cell_id)
    apply(database, result(job, Status.FAILED, ReasonCode.CRASH))
    second = dispatch(database, cell.cell_id)
    apply(database, result(second))
    with pytest.raises(IntegrityError, match=r"result\.cell_id"), database.write() as session:
        session.get_one(tables.Result, job.attempt_id).counted = True
