"""A finished number never disappears: it stands while its cell is measured again, until it is replaced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.measurement import BlockFigure, Quality
from agent.wire.messages import Reason, ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns, steering_requests
from orchestrator.db.cells import attempts, waiting
from orchestrator.db.results import compared_cells, records
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.manifest.campaign import DeviceSelector
from orchestrator.results.comparison import all_well, compare, summary
from orchestrator.results.export import result_json
from orchestrator.results.regression import by_names, compare_runs
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.stocked import cells, dispatch, planned, report_devices, result, stock

OLD, NEW = 1.0, 2.0
GPUS = tuple(
    CPU.model_copy(update={"device_id": f"unit-{n}", "name": f"unit {n}", "exclusion_group": f"u{n}"})
    for n in range(3)
)


def now():
    return datetime.now(UTC)


def apply(database, message):
    with database.write() as turn:
        return ingest.apply(turn, message, now())


def shown(database, campaign_no=1):
    with database.read() as session:
        found = records.cells_of(session, campaign_no)
        compared = compared_cells.compared_cells(session, campaign_no)
    for record, other in zip(found, compared, strict=True):
        assert (record.status, record.again, record.kept) == (other.status, other.again, other.kept)
    return found


def p50(cell):
    return None if cell.measurement is None else cell.measurement.latency_ms.p50


def put_back(database, *, start=False):
    """Queue the first cell again, as retry and refine do."""
    name = cells(database)[0].cell_id
    with database.write() as turn:
        steering_requests.put_back(turn, [turn.cell(name)], now(), "retry", "asked for by a user")
    return dispatch(database, name) if start else None


@pytest.fixture
def measured(any_database):
    stock(any_database, asked(("a", "b")))
    one, _ = cells(any_database)
    assert apply(any_database, result(dispatch(any_database, one.cell_id), p50=OLD)) == "counted"
    return any_database


def cancel(database, job):
    with database.write() as turn:
        assert campaigns.cancel_cells(turn, [turn.cell(cells(database)[0].cell_id)], now()) == 1
    if job is not None:
        apply(database, result(job, Status.CANCELLED, ReasonCode.CANCELLED))


def stop_farm(database, job):
    with database.write() as turn:
        attempts.ask_to_stop(turn, [job.attempt_id])
        ingest.give_up(turn, job.attempt_id, Reason(code=ReasonCode.INTERRUPTED, text="stopped"), now())


def lose_thrice(database, job):
    for _ in range(3):
        with database.write() as turn:
            ingest.lose(turn, job.attempt_id, Reason(code=ReasonCode.AGENT_LOST, text="gone"), now())
        if cells(database)[0].state == "queued":
            job = dispatch(database, cells(database)[0].cell_id)


def fail(code):
    return lambda database, job: apply(database, result(job, Status.FAILED, code))


def wait_too_long(database, _job):
    with database.write() as turn:
        turn.cell(cells(database)[0].cell_id).queue_until = now() - timedelta(seconds=1)
        turn.flush()
        assert waiting.end_overdue(turn, now()) == 1


def lose_device(database, _job):
    with database.write() as turn:
        assignments.fail_unplaceable(turn, ["host-cpu"], "its agent was removed", now())


KEPT = [
    ("it waits", False, lambda _database, _job: None, "queued", ""),
    ("it runs", True, lambda _database, _job: None, "running", ""),
    ("it was cancelled while it waited", False, cancel, None, ""),
    ("it was cancelled while it ran", True, cancel, None, ""),
    ("the farm was stopped", True, stop_farm, "queued", ""),
    ("its agent was lost", True, lose_thrice, None, "agent_lost"),
    ("it took too long", True, fail(ReasonCode.TIMEOUT), None, "timeout"),
    ("the conditions changed", True, fail(ReasonCode.CONDITIONS_CHANGED), None, "conditions_changed"),
    ("it waited too long", False, wait_too_long, None, "queue_limit"),
    ("its device went away", False, lose_device, None, "no_device"),
]


@pytest.mark.parametrize(
    ("start", "happens", "again", "why"), [case[1:] for case in KEPT], ids=[case[0] for case in KEPT]
)
def test_a_counted_result_stands_at_every_stage_of_a_new_measurement(measured, start, happens, again, why):
    happens(measured, put_back(measured, start=start))
    cell, _ = shown(measured)
    assert (cell.status, p50(cell), cell.again, cell.state) == ("done", OLD, again, again or "done")
    assert (cell.reason.code if cell.reason else "") == why
    assert cell.kept.startswith("measuring again" if again else f"not measured again: {why}" if why else "")
    assert bool(cell.kept) == bool(again or why)
    table = compare([cell], None).cells
    assert ("↻" in str(table)) == bool(cell.kept)
    assert all_well([cell]) == (not cell.kept)
    assert (result_json(cell)["again"], result_json(cell)["latency_ms"]["p50"]) == (again, OLD)
    with measured.read() as session:
        found = by_names(compared_cells.compared_cells(session, 1)[:1])
    (change,) = compare_runs(found, found).changes
    assert change.verdict not in ("broken", "repaired", "missing")
    with measured.read() as session:
        (counted,) = session.exec(select(tables.Result).where(tables.Result.counted))
    assert counted.attempt_id == cells(measured)[0].shown_attempt_id


@pytest.mark.parametrize(
    ("status", "code", "ends", "figure"),
    [
        (Status.DONE, ReasonCode.COMPLETED, "done", NEW),
        (Status.FAILED, ReasonCode.WRONG_OUTPUT, "failed", None),
        (Status.FAILED, ReasonCode.RUNNER_ERROR, "failed", None),
        (Status.UNSUPPORTED, ReasonCode.UNSUPPORTED_OPERATOR, "unsupported", None),
    ],
)
def test_a_new_result_of_the_model_replaces_the_old_one_which_stays_as_evidence(
    measured, status, code, ends, figure
):
    job = put_back(measured, start=True)
    assert apply(measured, result(job, status, code, p50=NEW)) == "counted"
    cell, _ = shown(measured)
    assert (cell.status, p50(cell), cell.again, cell.kept) == (ends, figure, None, "")
    with measured.read() as session:
        found = session.exec(select(tables.Result).order_by(tables.Result.received_at)).all()
    assert [row.counted for row in found] == [False, True]


def test_a_second_crash_is_the_models_and_a_first_one_is_not(measured):
    fail(ReasonCode.CRASH)(measured, put_back(measured, start=True))
    assert (shown(measured)[0].again, p50(shown(measured)[0])) == ("queued", OLD)
    fail(ReasonCode.CRASH)(measured, dispatch(measured, cells(measured)[0].cell_id))
    assert (shown(measured)[0].status, shown(measured)[0].kept) == ("failed", "")


def test_what_was_never_measured_is_cancelled_as_before(measured):
    with measured.write() as turn:
        campaigns.cancel_campaign(turn, turn.exec(select(tables.Campaign)).one(), now())
    assert [cell.status for cell in shown(measured)] == ["done", "cancelled"]


def test_a_cell_that_is_cancelled_may_be_measured_again_afterwards(measured):
    cancel(measured, put_back(measured, start=True))
    assert apply(measured, result(put_back(measured, start=True), p50=NEW)) == "counted"
    assert p50(shown(measured)[0]) == NEW


def test_a_cell_that_is_measured_again_does_not_reuse_its_own_result(measured):
    put_back(measured)
    with measured.write() as turn:
        jobs = assignments.fill(turn, ["host-cpu"], now())
    assert [job.cell_id for _, job in jobs] == [cells(measured)[0].cell_id]


def test_the_unit_of_a_class_that_a_result_is_of_stays_that_of_its_cell(any_database):
    any_cpu = asked(("a",), devices=(DeviceSelector(kind="cpu", count=2),))
    stock(any_database, any_cpu, GPUS)
    line = cells(any_database)[0].line
    for cell, unit in zip(cells(any_database), ("unit-2", "unit-0"), strict=True):
        apply(any_database, result(dispatch(any_database, cell.cell_id, unit)))
    put_back(any_database)
    first, second = cells(any_database)
    assert (first.line, first.device_id, second.device_id) == ("unit-2", "unit-2", "unit-0")
    fail(ReasonCode.CRASH)(any_database, dispatch(any_database, first.cell_id, "unit-2"))
    assert cells(any_database)[0].device_id == "unit-2"
    fail(ReasonCode.CRASH)(any_database, dispatch(any_database, first.cell_id, "unit-2"))
    put_back(any_database)
    assert (cells(any_database)[0].line, cells(any_database)[0].device_id) == (line, None)


@pytest.mark.parametrize(
    ("happens", "status", "figure", "reused"),
    [
        (lambda _database, _job: None, "done", OLD, True),
        (fail(ReasonCode.TIMEOUT), "done", OLD, True),
        (lambda database, job: apply(database, result(job, p50=NEW)), "done", NEW, False),
        (fail(ReasonCode.WRONG_OUTPUT), "failed", None, False),
    ],
)
def test_a_forced_campaign_shows_the_last_result_until_it_has_its_own(
    measured, happens, status, figure, reused
):
    campaign, plan = asked(("a",), name="again"), planned(measured, asked(("a",)), force=True)
    with measured.write() as turn:
        campaigns.add(turn, campaign, plan, "content", "never", now())
    first, _, own = cells(measured)
    (cell,) = shown(measured, 2)
    assert (cell.status, cell.again, p50(cell)) == ("done", "queued", OLD)
    assert summary([cell]) == "1 cell: 1 done; 1 measuring again"
    happens(measured, dispatch(measured, own.cell_id))
    (cell,) = shown(measured, 2)
    assert (cell.status, p50(cell)) == (status, figure)
    assert cell.reused_from == (first.cell_id if reused else None)
    assert p50(shown(measured)[0]) == OLD


def test_a_retry_of_void_results_that_is_cancelled_changes_nothing(measured):
    before = shown(measured)[0]
    with measured.write() as turn:
        turn.find_result(str(cells(measured)[0].shown_attempt_id)).grade = "void"
    with measured.write() as turn:
        ref = cells(measured)[0].cell_id
        assert steering_requests.retry(turn, ref, now(), failed_only=False, grades=("void",)) == 1
    cancel(measured, None)
    assert shown(measured)[0] == before
    report_devices(measured)


def part_of(job, blocks=2):
    """Return the result of an attempt that was ended early, with so many blocks of its own."""
    earlier = () if job.refines is None else job.refines.blocks
    own = tuple(BlockFigure(p50_ns=NEW * 1e6, rounds=7) for _ in range(blocks))
    message = result(job, p50=NEW)
    measured = message.measurement.model_copy(
        update={"blocks": (*earlier, *own), "quality": Quality(blocks=blocks, stopped="cancelled")}
    )
    return message.model_copy(update={"measurement": measured})


def ask_to_stop(database, job):
    with database.write() as turn:
        attempts.ask_to_stop(turn, [job.attempt_id])


def ask_to_cancel(database, _job):
    with database.write() as turn:
        campaigns.cancel_cells(turn, [turn.cell(cells(database)[0].cell_id)], now())


def kill_scheduler(database, _job):
    with database.write() as turn:
        assert ingest.recover(turn, now()) == 1


def no_request(_database, _job):
    """Its agent was stopped by somebody else."""


EARLY = [
    ("the farm was stopped", ask_to_stop, "queued"),
    ("its agent was stopped", no_request, "queued"),
    ("the scheduler was killed", kill_scheduler, "queued"),
    ("the farm was stopped at once", stop_farm, "queued"),
    ("a user cancelled it", ask_to_cancel, None),
]


@pytest.mark.parametrize("before", [False, True], ids=["first", "again"])
@pytest.mark.parametrize(("how", "again"), [case[1:] for case in EARLY], ids=[case[0] for case in EARLY])
def test_finished_blocks_stand_and_the_next_attempt_adds_to_them(any_database, how, again, before):
    stock(any_database, asked(("a", "b")))
    name = cells(any_database)[0].cell_id
    if before:
        apply(any_database, result(dispatch(any_database, name), p50=OLD))
        job = put_back(any_database, start=True)
    else:
        job = dispatch(any_database, name)
    how(any_database, job)
    message = part_of(job)
    assert apply(any_database, message) == "counted"
    assert apply(any_database, message) == "duplicate"
    cell, _ = shown(any_database)
    assert (cell.status, p50(cell), cell.again, cell.attempts[-1].state) == ("done", NEW, again, "done")
    if again is None:
        assert cell.kept == "", "it is the newest result, and is not queued again"
        assert cells(any_database)[0].refines is None, "no attempt is to go on from it"
        return
    for count in (3, 4):  # interrupted once more, it has the blocks of both
        job = dispatch(any_database, name)
        assert (job.device_id, len(job.refines.blocks)) == (cell.device, count - 1)
        assert job.plan.max_blocks == max(job.plan.min_blocks, 6)
        ask_to_stop(any_database, job)
        assert apply(any_database, part_of(job, blocks=1)) == "counted"
    assert len(shown(any_database)[0].measurement.blocks) == 4


def test_finished_blocks_that_come_late_do_not_count_once_the_device_has_another_attempt(measured):
    job = put_back(measured, start=True)
    stop_farm(measured, job)
    dispatch(measured, cells(measured)[1].cell_id)
    assert apply(measured, part_of(job)) == "late"
    assert p50(shown(measured)[0]) == OLD


def test_a_late_part_holds_its_cell_on_the_unit_that_it_is_of(any_database):
    any_cpu = asked(("a",), devices=(DeviceSelector(kind="cpu", count=2),))
    stock(any_database, any_cpu, GPUS)
    name = cells(any_database)[0].cell_id
    job = dispatch(any_database, name, "unit-2")
    kill_scheduler(any_database, job)
    assert cells(any_database)[0].device_id is None
    assert apply(any_database, part_of(job)) == "counted"
    cell = cells(any_database)[0]
    assert (cell.state, cell.device_id, cell.line) == ("queued", "unit-2", "unit-2")


def test_a_void_part_is_shown_and_measured_anew(measured):
    job = put_back(measured, start=True)
    ask_to_stop(measured, job)
    message = part_of(job)
    void = Quality(blocks=2, stopped="cancelled", void=("pages were swapped in",))
    found = message.measurement.model_copy(update={"quality": void})
    assert apply(measured, message.model_copy(update={"measurement": found})) == "counted"
    assert dispatch(measured, cells(measured)[0].cell_id).refines is None


def test_the_next_campaign_goes_on_from_a_part_and_does_not_reuse_it(measured):
    job = put_back(measured, start=True)
    ask_to_cancel(measured, job)
    apply(measured, part_of(job))
    campaign = asked(("a", "b"))
    (plan, _other) = planned(measured, campaign)
    assert (plan.action, plan.why) == ("run", "goes on from 2 blocks: the last attempt was ended early")
    assert len(plan.continues.blocks) == 2
    (forced, _other) = planned(measured, campaign, force=True)
    assert (forced.action, forced.continues) == ("run", None)
