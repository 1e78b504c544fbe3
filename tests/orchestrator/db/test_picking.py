"""The policy over real rows: classes of devices, pauses, cool-down, shares. On both engines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from sqlalchemy import literal
from sqlmodel import select

from agent.wire.messages import Reason, ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns, steering_requests
from orchestrator.db.cells import waiting
from orchestrator.db.devices import agents
from orchestrator.db.queue import candidate_queries, class_pages, picking
from orchestrator.db.results import records
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.manifest.campaign import DeviceSelector, RetryEntry
from orchestrator.policy.assign import Assignment
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.db import queue_steps
from tests.orchestrator.db.queue_steps import FLEET, GPUS, begin, change, choose, now, read, take_in
from tests.orchestrator.stocked import cells, dispatch, planned, result, stock

ANY_GPU = DeviceSelector(kind="gpu", count=2)


@pytest.fixture
def database(any_database):
    return any_database


@pytest.fixture(params=["one by one", "a page"])
def way(request, monkeypatch):
    """Choose how the line of a class is read: by each device for itself, or once for all."""
    monkeypatch.setattr(picking, "_FEW", 99 if request.param == "one by one" else 0)
    monkeypatch.setattr(class_pages, "_SPARE", 0)


def two_of_the_class(*models, **how):
    return asked(models or ("m",), {"gpu": {}}, devices=(ANY_GPU,), **how)


@pytest.mark.usefixtures("way")
def test_a_class_goes_to_whichever_device_is_idle_and_each_sibling_to_another(database):
    stock(database, two_of_the_class(), FLEET)
    first, second = cells(database)
    assert (first.target, second.target) == ("any:kind=gpu#0", "any:kind=gpu#1")
    (chosen,) = choose(database, "gpu-2")
    assert chosen == Assignment(first.cell_id, "gpu-2")
    job = begin(database, chosen)
    take_in(database, result(job))
    assert choose(database, "gpu-2") == (), "the second wants another unit"
    assert choose(database, "gpu-0", "gpu-1", "gpu-2") == (Assignment(second.cell_id, "gpu-0"),)


def test_the_device_of_a_class_cell_belongs_to_the_attempt_and_to_the_result(database):
    stock(database, two_of_the_class(), FLEET)
    (chosen,) = choose(database, "gpu-1")
    take_in(database, result(begin(database, chosen)))
    with database.read() as session:
        stored = session.get_one(tables.Cell, chosen.cell_id)
        measured = session.get_one(tables.Result, stored.shown_attempt_id)
        assert (stored.target, measured.device_id) == ("any:kind=gpu#0", "gpu-1")


@pytest.mark.usefixtures("way")
def test_a_class_cell_that_failed_prefers_another_unit_for_a_while(database):
    stock(database, asked(("m",), {"gpu": {}}, devices=(DeviceSelector(kind="gpu", count=1),)), FLEET)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id, "gpu-0")
    take_in(database, result(job, Status.FAILED, ReasonCode.DEVICE_LOST))
    soon = now() + timedelta(seconds=5)
    assert choose(database, "gpu-0", at=soon) == ()
    assert choose(database, "gpu-0", "gpu-1", at=soon) == (Assignment(cell.cell_id, "gpu-1"),)
    late = soon + candidate_queries.OTHER_UNIT
    assert choose(database, "gpu-0", at=late) == (Assignment(cell.cell_id, "gpu-0"),)


@pytest.mark.usefixtures("way")
def test_a_class_cell_that_a_user_has_tried_again_goes_to_the_unit_where_it_failed_too(database):
    stock(database, asked(("m",), {"gpu": {}}, devices=(DeviceSelector(kind="gpu", count=1),)), FLEET)
    (cell,) = cells(database)
    take_in(database, result(dispatch(database, cell.cell_id, "gpu-0"), Status.FAILED, ReasonCode.TIMEOUT))
    with database.write() as turn:
        assert steering_requests.retry(turn, cell.cell_id, now(), failed_only=True) == 1
    assert choose(database, "gpu-0") == (Assignment(cell.cell_id, "gpu-0"),)


@pytest.mark.usefixtures("way")
def test_a_campaign_measures_a_class_again_on_the_devices_that_an_earlier_one_had(database):
    for name in ("first", "again"):
        stock(database, two_of_the_class(name=name, reuse="never"), FLEET[:3])
        for chosen in choose(database, "gpu-0", "gpu-1"):
            take_in(database, result(begin(database, chosen)))
    found = [(cell.state, cell.device_id) for cell in cells(database)]
    assert found == [("done", "gpu-0"), ("done", "gpu-1")] * 2


@pytest.mark.usefixtures("way")
def test_a_device_that_had_the_first_cells_of_a_class_finds_those_behind_them(database):
    stock(database, two_of_the_class("a", "b", "c"), FLEET)
    for _ in range(2):
        (chosen,) = choose(database, "gpu-0")
        take_in(database, result(begin(database, chosen)))
    a0, a1, b0, b1, c0, _ = (cell.cell_id for cell in cells(database))
    assert {cell.cell_id for cell in cells(database) if cell.state == "done"} == {a0, b0}
    assert choose(database, "gpu-0") == (Assignment(c0, "gpu-0"),)
    chosen = choose(database, "gpu-0", "gpu-1", "gpu-2")
    assert {a.device_id: a.cell_id for a in chosen} == {"gpu-0": c0, "gpu-1": a1, "gpu-2": b1}


@pytest.mark.usefixtures("way")
def test_many_idle_devices_of_a_class_are_filled_at_once(database):
    fleet = [
        CPU,
        *(
            GPUS[0].model_copy(update={"device_id": f"gpu-{i}", "exclusion_group": f"host/gpu-{i}"})
            for i in range(12)
        ),
    ]
    stock(database, two_of_the_class(*"abcdef", name="one"), fleet)
    stock(database, two_of_the_class(*"xyz", name="two"), fleet)
    chosen = choose(database, *(device.device_id for device in fleet))
    assert len(chosen) == len({a.device_id for a in chosen}) == 12
    by_id = {cell.cell_id: cell for cell in cells(database)}
    siblings = [by_id[a.cell_id].siblings for a in chosen]
    assert len({by_id[a.cell_id].campaign_no for a in chosen}) == 2, "both campaigns have a share"
    assert len(siblings) == 12


def test_only_devices_that_match_the_selector_take_its_cells(database):
    room = DeviceSelector(labels={"room": "b"}, count=1)
    stock(database, asked(("m",), {"gpu": {}}, devices=(room,)), FLEET)
    (cell,) = cells(database)
    assert cell.line == "any:label.room=b/gpu"
    assert choose(database, "gpu-0", "gpu-1", "host-cpu") == ()
    assert choose(database, "gpu-2") == (Assignment(cell.cell_id, "gpu-2"),)


def test_more_cells_of_a_class_than_devices_end_at_once_with_the_reason(database):
    wanted = DeviceSelector(labels={"room": "b"}, count=2)
    stock(database, asked(("m",), {"gpu": {}}, devices=(wanted,)), FLEET)
    first, second = cells(database)
    assert first.state == "queued"
    assert (second.state, second.reason_code) == ("unsupported", "no_device")
    assert "counts 2 devices that host 'gpu'; there are 1: gpu-2" in second.reason_text


def test_a_class_of_which_no_device_is_left_ends_with_the_reason(database):
    stock(database, two_of_the_class(), FLEET)
    with database.write() as session:
        assert assignments.fail_vanished(session, ["host-cpu", "gpu-1", "gpu-2"], {}, now()) == 0
        assert assignments.fail_vanished(session, ["host-cpu"], {"gpu": "no driver"}, now()) == 2
    assert (
        cells(database)[0].reason_text == "no device of the class any:kind=gpu is present any more: no driver"
    )


@pytest.mark.parametrize("first", ["waits", "runs", "is done"])
def test_a_cell_ends_where_its_class_has_too_few_devices_left_and_so_does_its_campaign(database, first):
    stock(database, two_of_the_class("a"), FLEET[:3])
    a0, _a1 = cells(database)
    stock(database, two_of_the_class("b", name="parked"), FLEET[:3])
    with database.write() as turn:
        campaigns.park(turn, 2, parked=True)
    job = None if first == "waits" else dispatch(database, a0.cell_id, "gpu-1")
    if first == "is done":
        take_in(database, result(job))
    with database.write() as turn:
        assert assignments.fail_vanished(turn, ["host-cpu", "gpu-1"], {"gpu": "it fell out"}, now()) == 1
    _, a1, *others = cells(database)
    assert [a1.state, a1.reason_code, *(cell.state for cell in others)] == [
        "unsupported", "no_device", "queued", "queued",
    ]  # fmt: skip
    assert a1.reason_text == (
        "the class any:kind=gpu has too few devices left: its other cells have or get gpu-1: it fell out"
    )
    if first == "waits":
        job = begin(database, *choose(database, "gpu-1"))
        assert job.cell_id == a0.cell_id
    if first != "is done":
        take_in(database, result(job))
    assert read(database, tables.Campaign, 1).ended_at is not None


def test_what_a_device_that_is_gone_has_measured_leaves_its_sibling_another(database):
    stock(database, two_of_the_class(), FLEET[:3])
    first, second = cells(database)
    take_in(database, result(dispatch(database, first.cell_id, "gpu-0")))
    with database.write() as turn:
        assert assignments.fail_vanished(turn, ["gpu-1"], {}, now()) == 0
    assert choose(database, "gpu-1") == (Assignment(second.cell_id, "gpu-1"),)


def test_a_device_that_cools_down_gets_nothing_until_it_has(database):
    stock(database, asked(("a", "b")), FLEET)
    change(database, tables.Device, "host-cpu", cooldown_s=30.0)
    first, second = cells(database)
    take_in(database, result(dispatch(database, first.cell_id)))
    assert choose(database, "host-cpu") == ()
    later = now() + timedelta(seconds=31)
    assert choose(database, "host-cpu", at=later) == (Assignment(second.cell_id, "host-cpu"),)


def test_a_reservation_keeps_others_from_its_device_and_from_what_excludes_it_until_it_ends(database):
    for user, delegates in (("ana", {"cpu": {}, "gpu": {}}), ("bob", {"gpu": {}})):
        campaign = stock(database, asked(("m",), delegates, name=user), FLEET)
        with database.write() as turn:
            records.find_campaign(turn, campaign).submitted_by = user
    until = now() + timedelta(hours=2)
    change(database, tables.Device, "gpu-1", reserved_by="bob", reserved_until=until)
    every = [device.device_id for device in FLEET]

    def users():
        whose = {c.cell_id: c.campaign_no for c in cells(database)}
        return {given.device_id: whose[given.cell_id] for given in choose(database, *every)}

    assert users()["gpu-1"] == 2
    only = {cell.cell_id for cell in cells(database) if cell.campaign_no == 1}
    with database.write() as turn:
        campaigns.cancel_campaign(turn, records.find_campaign(turn, "bob"), now())
    taken = {given.device_id for given in choose(database, *every) if given.cell_id in only}
    assert taken == {"gpu-0", "gpu-2"}, "the host's CPU excludes the GPU that bob has"
    assert "host-cpu" in {given.device_id for given in choose(database, "host-cpu", at=until)}
    with database.write() as turn:
        attempt = Assignment(next(c.cell_id for c in cells(database) if c.target == "gpu-1"), "gpu-1")
        assert assignments._begin(turn, [attempt], now()) == [], "reserved since it was chosen"


def test_campaigns_take_turns_by_device_seconds_and_a_newcomer_is_owed_nothing(database, monkeypatch):
    moments = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second) for second in count())
    monkeypatch.setattr(queue_steps, "now", lambda: next(moments))
    stock(database, asked(tuple("abcdef"), name="first"), FLEET)
    take_in(database, result(begin(database, choose(database, "host-cpu")[0])))
    stock(database, asked(tuple("uvwxyz"), name="second"), FLEET)
    order = []
    for _ in range(6):
        (chosen,) = choose(database, "host-cpu")
        take_in(database, result(begin(database, chosen)))
        order.append(next(c.campaign_no for c in cells(database) if c.cell_id == chosen.cell_id))
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == [1, 2]


def test_priorities_go_first_and_paused_campaigns_not_at_all(database):
    stock(database, asked(("a",), name="plain"), FLEET)
    stock(database, asked(("b",), name="urgent", priority=5), FLEET)
    plain, urgent = cells(database)
    assert choose(database, "host-cpu")[0].cell_id == urgent.cell_id
    change(database, tables.Campaign, urgent.campaign_no, paused_at=now())
    assert choose(database, "host-cpu")[0].cell_id == plain.cell_id


def test_a_cpu_cell_waits_for_every_gpu_of_its_host_and_they_for_it(database):
    stock(database, asked(("m",), {"cpu": {}, "gpu": {}}), FLEET)
    on = {cell.target: cell for cell in cells(database)}
    gpu_job = dispatch(database, on["gpu-1"].cell_id)
    devices = [device.device_id for device in FLEET]
    assert choose(database, *devices) == (), "the CPU cell is first in line and holds the place"
    take_in(database, result(gpu_job))
    (cpu,) = choose(database, *devices)
    assert cpu.device_id == "host-cpu"
    begin(database, cpu)
    assert choose(database, *devices) == ()


def test_a_campaign_ends_with_its_last_cell_and_is_looked_at_no_more(database):
    stock(database, asked(("a", "b")), FLEET)
    first, second = cells(database)
    take_in(database, result(dispatch(database, first.cell_id)))
    assert read(database, tables.Campaign, 1).ended_at is None
    take_in(database, result(dispatch(database, second.cell_id)))
    assert read(database, tables.Campaign, 1).ended_at is not None
    assert choose(database, "host-cpu") == ()


def test_the_line_of_a_device_is_read_from_its_index_alone(database):
    stock(database, asked(tuple("abc")), FLEET)
    explain = "EXPLAIN QUERY PLAN " if not database.is_postgresql else "EXPLAIN "
    with database.read() as session:
        connection = session.connection()
        if database.is_postgresql:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        query = candidate_queries.in_order(literal("host-cpu")).where(
            candidate_queries.candidate.c.campaign_no == 1
        )
        text = str(
            query.limit(1).params(now=now()).compile(connection, compile_kwargs={"literal_binds": True})
        )
        plan = "\n".join(str(row) for row in connection.exec_driver_sql(explain + text.replace("%", "%%")))
    assert "ix_cell_pick" in plan
    assert "SCAN candidate" not in plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan


def test_ends_before_a_users_retry_do_not_count(database):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    for _ in range(2):
        take_in(database, result(dispatch(database, cell.cell_id), Status.FAILED, ReasonCode.DEVICE_LOST))
    change(database, tables.Cell, cell.cell_id, retried_after=2)
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        ingest.give_up(session, job.attempt_id, Reason(code=ReasonCode.DEVICE_LOST, text="gone"), now())
    assert read(database, tables.Cell, cell.cell_id).state == "queued"


def test_a_class_outlives_an_agent_only_while_another_has_a_device_of_it(database):
    stock(database, two_of_the_class(), FLEET)
    with database.write() as session:
        assert assignments.fail_unplaceable(session, ["gpu-0"], "agent a drains", now()) == 0
        agents.set_state(session, "embedded", tables.AGENT_DRAINING)
        assert (
            assignments.fail_unplaceable(session, ["gpu-0", "gpu-1", "gpu-2"], "agent a drains", now()) == 2
        )
    assert {cell.state for cell in cells(database)} == {"unsupported"}
    assert cells(database)[0].reason_text.endswith("is present any more: agent a drains")


def test_a_device_of_an_agent_that_leaves_gets_nothing_from_that_moment_on(database):
    stock(database, asked(("m",)), FLEET)
    with database.write() as session:
        (agent_id,) = {session.get_one(tables.Device, "host-cpu").agent_id}
        assert agents.set_state(session, agent_id, tables.AGENT_REMOVED)
    assert choose(database, "host-cpu") == ()
    with database.write() as session:
        assert agents.set_state(session, agent_id, tables.AGENT_ACTIVE)
    assert len(choose(database, "host-cpu")) == 1


@pytest.mark.parametrize("since", ["begun", "paused", "cancelled"])
def test_a_choice_that_is_out_of_date_begins_nothing(database, monkeypatch, since):
    stock(database, asked(("m",)), FLEET)
    (chosen,) = choose(database, "host-cpu")
    if since == "begun":
        begin(database, chosen)
    else:
        (cell,) = cells(database)
        moment = {"paused": "paused_at", "cancelled": "cancel_asked_at"}[since]
        change(database, tables.Campaign, cell.campaign_no, **{moment: now()})
    before = [cell.state for cell in cells(database)]
    choices = [(chosen,), ()]
    monkeypatch.setattr(picking, "choose", lambda *_: choices.pop(0))
    with database.write() as turn:
        assert assignments.fill(turn, ["host-cpu"], now()) == []
    assert [cell.state for cell in cells(database)] == before


def submitted(database, user, name, *models):
    stock(database, asked(models, {"cpu": {}}, name=name), FLEET)
    with database.write() as turn:
        campaign = records.find_campaign(turn, name)
        campaign.submitted_by = user
        turn.flush()
        campaigns.rejoin(turn, campaign)


def test_users_share_a_device_whatever_the_number_of_their_campaigns(database):
    for user, name in (("ana", "ana-1"), ("ana", "ana-2"), ("bob", "bob-1")):
        submitted(database, user, name, "m", "n")

    def next_user(given_to=None, seconds=0.0):
        with database.write() as turn:
            if given_to is not None:
                turn.charge(records.find_campaign(turn, given_to).no, seconds)
        (chosen,) = choose(database, "host-cpu")
        with database.read() as session:
            cell = session.get_one(tables.Cell, chosen.cell_id)
            return session.get_one(tables.Campaign, cell.campaign_no).submitted_by

    assert next_user("ana-1", 10.0) == "bob", "nothing was given to ana-2, and ten seconds to ana"
    assert next_user("bob-1", 15.0) == "ana"
    assert next_user("ana-2", 3.0) == "ana", "thirteen seconds in two campaigns"
    assert next_user("ana-2", 3.0) == "bob"


def test_a_user_who_comes_later_is_owed_nothing_and_a_second_campaign_brings_nothing(database):
    submitted(database, "ana", "ana-1", "m", "n")
    with database.write() as turn:
        turn.charge(records.find_campaign(turn, "ana-1").no, 7.0)
    submitted(database, "bob", "bob-1", "m")
    submitted(database, "ana", "ana-2", "m")
    with database.read() as session:
        shares = {row.name: row.user_served_s for row in session.exec(select(tables.Campaign))}
    assert shares == dict.fromkeys(("ana-1", "bob-1", "ana-2"), 7.0)


def limited(campaign, **rules):
    """Return the campaign with rules of its models."""
    return replace(campaign, models=tuple(replace(model, **rules) for model in campaign.models))


def test_a_cell_that_no_device_takes_in_time_fails_and_a_pause_or_an_attempt_restarts_the_clock(database):
    stock(database, limited(asked(("a", "b"), name="hurried"), queue_limit_s=60.0), FLEET)
    stock(database, asked(("m",), name="patient"), FLEET)
    a, b, patient = cells(database)
    job = begin(database, Assignment(a.cell_id, "host-cpu"))
    with database.write() as turn:
        steering_requests.pause(turn, "hurried", now())
        assert waiting.end_overdue(turn, now() + timedelta(seconds=61)) == 0
        steering_requests.resume(turn, "hurried", now() + timedelta(seconds=30))
        assert waiting.end_overdue(turn, now() + timedelta(seconds=61)) == 0, "it waited for nothing"
        assert waiting.end_overdue(turn, now() + timedelta(seconds=91)) == 1
    take_in(database, result(job, Status.FAILED, ReasonCode.AGENT_LOST))
    a, b, patient = cells(database)
    assert [cell.state for cell in (a, b, patient)] == ["queued", "failed", "queued"]
    assert (b.reason_code, "took it within 0:01:00" in b.reason_text) == ("queue_limit", True)
    assert now() < a.queue_until <= now() + timedelta(seconds=60)
    with database.write() as turn:
        assert steering_requests.retry(turn, "hurried", now(), failed_only=True) == 1
        assert waiting.end_overdue(turn, now() + timedelta(seconds=59)) == 0


def test_a_model_s_own_rules_decide_whether_it_is_tried_again_and_what_it_reuses(database):
    once = asked(("a",), name="once")
    stock(database, limited(once, retry=RetryEntry(times=0)), FLEET)
    (cell,) = cells(database)
    take_in(database, result(dispatch(database, cell.cell_id), Status.FAILED, ReasonCode.AGENT_LOST))
    assert cells(database)[0].state == "failed"
    stock(database, asked(("a",), name="measured"), FLEET)
    take_in(database, result(dispatch(database, cells(database)[1].cell_id), environment=CPU.environment))
    actions = {
        rule: [cell.action for cell in planned(database, limited(once, reuse=rule), FLEET)]
        for rule in (None, "never")
    }
    assert actions == {None: ["reuse"], "never": ["run"]}
    stock(database, limited(asked(("a",), name="again"), reuse="never"), FLEET)
    jobs = fill(database, "host-cpu")
    assert [cells(database)[2].state, len(jobs)] == ["dispatched", 1], "nor is it reused when its turn comes"


def fill(database, *device_ids):
    with database.write() as turn:
        return assignments.fill(turn, device_ids, now())
