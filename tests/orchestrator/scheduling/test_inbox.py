"""A lab's scheduler has tasks left after each message that was applied."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.wire.envelope import SigningKey
from agent.wire.messages import (
    AgentAlive,
    AgentHello,
    CancelJob,
    Heartbeat,
    JobRefused,
    JobStarted,
    ReasonCode,
    Receipt,
    Shutdown,
    Status,
    Upgrade,
)
from orchestrator.db import tables
from orchestrator.db.cells import attempts
from orchestrator.db.devices import agents, credentials
from orchestrator.db.devices.agents import states
from orchestrator.dispatch.base import BrokerBack, IncompatibleHello, MessageReceived
from orchestrator.manifest.campaign import DeviceSelector
from orchestrator.scheduling.available_devices import AvailableDevices
from orchestrator.scheduling.inbox import FollowUp, Inbox
from tests.orchestrator.asked import GPU, asked
from tests.orchestrator.stocked import cells, dispatch, result, stock

DEVICE = GPU.model_copy(update={"device_id": "rack.gpu-0"})
HELLO = MessageReceived("rack", AgentHello(agent_id="rack", host="rack", version="0", devices=(DEVICE,)))


@pytest.fixture
def inbox():
    return Inbox(AvailableDevices(silence_s=60.0), sole=False, patience_s=30.0, heartbeat_s=5.0)


@pytest.fixture
def job(database, inbox):
    """Return a job that the agent `rack` runs on its one device."""
    stock(database, asked(delegates={"gpu": {}}), [DEVICE])
    apply(database, inbox, HELLO)
    return dispatch(database, cells(database)[0].cell_id)


def apply(database, inbox, *events) -> FollowUp:
    with database.write() as turn:
        return inbox.apply(turn, events, datetime.now(UTC))


def beat(job, phase="measure 1/3", epoch=None) -> Heartbeat:
    return Heartbeat(attempt_id=job.attempt_id, epoch=epoch or job.epoch, seq=1, phase=phase)


def test_a_hello_frees_its_devices_and_changes_the_agents(database, inbox):
    stock(database, asked(delegates={"gpu": {}}), [DEVICE])
    found = apply(database, inbox, HELLO)
    assert found == FollowUp(freed=frozenset({"rack.gpu-0"}), news=True, agents_changed=True)


def test_a_job_that_an_agent_may_never_have_got_is_sent_again_with_its_hello(database, inbox):
    stock(database, asked(delegates={"gpu": {}}), [DEVICE])
    apply(database, inbox, HELLO)
    job = dispatch(database, cells(database)[0].cell_id, start=False)
    assert apply(database, inbox, HELLO).replies == (("rack", job),)
    assert inbox.in_doubt == {}


def test_an_attempt_that_a_hello_does_not_name_is_in_doubt_until_it_is_reported(database, inbox, job):
    with database.write() as turn:
        attempts.note_heartbeat(turn, beat(job), datetime.now(UTC))
    apply(database, inbox, HELLO)
    assert list(inbox.in_doubt) == [job.attempt_id]
    apply(database, inbox, MessageReceived("rack", beat(job)))
    assert inbox.in_doubt == {}


def test_a_result_is_acknowledged_and_frees_its_device(database, inbox, job):
    found = apply(database, inbox, MessageReceived("rack", result(job)))
    receipt = ("rack", Receipt(attempt_id=job.attempt_id))
    assert found == FollowUp((receipt,), frozenset({"rack.gpu-0"}), news=True)


def test_what_several_messages_leave_to_do_is_put_together(database, inbox, job):
    found = apply(database, inbox, MessageReceived("rack", result(job)), BrokerBack(), HELLO)
    assert found.republish
    assert found.agents_changed
    assert found.replies == (("rack", Receipt(attempt_id=job.attempt_id)),)


def test_the_reply_to_an_outdated_heartbeat_is_to_cancel(database, inbox, job):
    found = apply(database, inbox, MessageReceived("rack", beat(job, epoch=job.epoch + 1)))
    assert found == FollowUp((("rack", CancelJob(attempt_id=job.attempt_id)),))


def test_a_heartbeat_without_news_is_not_stored(database, inbox, job):
    event = MessageReceived("rack", beat(job))
    assert inbox.is_relevant(event)
    apply(database, inbox, event)
    assert not inbox.is_relevant(event)
    assert inbox.is_relevant(MessageReceived("other", beat(job))), "another agent's word about it is checked"


def test_heartbeats_of_invented_attempts_are_not_remembered(database, inbox, job):
    invented = MessageReceived("rack", beat(job).model_copy(update={"attempt_id": "invented"}))
    apply(database, inbox, invented)
    assert inbox.is_relevant(invented), "an agent could name one after the other and fill the memory"


def test_of_an_agents_heartbeats_only_a_change_of_what_waits_is_stored(database, inbox, job):
    for message in (AgentAlive(), AgentAlive(waiting=1), AgentAlive()):
        event = MessageReceived("rack", message)
        assert inbox.is_relevant(event)
        apply(database, inbox, event)
        assert not inbox.is_relevant(event)


def test_a_clock_is_stored_where_it_moved_against_the_servers(database, inbox, job):
    apply(database, inbox, MessageReceived("rack", AgentAlive()))
    for ahead_s, stored in ((7200.0, True), (7190.0, False), (0.0, True), (-7200.0, True)):
        clock_ns = int((datetime.now(UTC).timestamp() + ahead_s) * 1e9)
        event = MessageReceived("rack", AgentAlive(clock_ns=clock_ns))
        assert inbox.is_relevant(event) is stored
        apply(database, inbox, event)
        with database.read() as session:
            (rack,) = (agent for agent in states(session) if agent.agent_id == "rack")
        assert abs(rack.clock_ahead_s - ahead_s) < 30.0


@pytest.mark.parametrize("told", ["result", "refusal"])
def test_a_cell_that_waits_again_after_its_device_went_ends_as_no_device(database, inbox, job, told):
    gone = HELLO.message.model_copy(update={"devices": (), "live": (job.attempt_id,)})
    apply(database, inbox, MessageReceived("rack", gone))
    assert cells(database)[0].state == "running"
    ended = result(job, Status.FAILED, ReasonCode.INTERRUPTED)
    if told == "refusal":
        ended = JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=ended.reason)
    apply(database, inbox, MessageReceived("rack", ended))
    assert (cells(database)[0].state, cells(database)[0].reason_code) == ("unsupported", "no_device")


@pytest.fixture
def pair(database, inbox):
    """Return the jobs of two cells that want different devices of a class, each on its machine's only one."""
    machines = ("rack", "shelf")
    devices = [GPU.model_copy(update={"device_id": f"{name}.gpu-0"}) for name in machines]
    both = (DeviceSelector(kind="gpu", count=2),)
    stock(database, asked(delegates={"gpu": {}}, devices=both), devices)
    for name, device in zip(machines, devices, strict=True):
        hello = AgentHello(agent_id=name, host=name, version="0", devices=(device,))
        apply(database, inbox, MessageReceived(name, hello))
    return [
        dispatch(database, cell.cell_id, device.device_id)
        for cell, device in zip(cells(database), devices, strict=True)
    ]


@pytest.mark.parametrize("state", [tables.AGENT_REMOVED, tables.AGENT_DRAINING])
def test_a_cell_of_a_class_that_waits_again_after_its_agent_left_ends_as_no_device(
    database, inbox, pair, state
):
    with database.write() as turn:
        agents.set_state(turn, "rack", state)
    for name, job in zip(("rack", "shelf"), pair, strict=True):
        ended = result(job, Status.FAILED, ReasonCode.INTERRUPTED)
        apply(database, inbox, MessageReceived(name, ended))
    first, second = cells(database)
    assert (first.state, first.reason_code, second.state) == ("unsupported", "no_device", "queued")
    assert first.reason_text.endswith("have or get shelf.gpu-0: agent rack was drained or removed")


@pytest.mark.parametrize("change", [{"kind": "cpu"}, {"delegates": ()}, None], ids=str)
def test_a_waiting_cell_ends_with_the_hello_that_takes_a_device_from_its_class(database, inbox, pair, change):
    apply(database, inbox, MessageReceived("rack", result(pair[0], Status.FAILED, ReasonCode.INTERRUPTED)))
    devices = () if change is None else (DEVICE.model_copy(update=change),)
    hello = HELLO.message.model_copy(update={"devices": devices})
    apply(database, inbox, HELLO)
    assert cells(database)[0].state == "queued"
    apply(database, inbox, MessageReceived("rack", hello))
    assert [cell.state for cell in cells(database)] == ["unsupported", "running"]
    assert cells(database)[0].reason_text == (
        "the class any:kind=gpu has too few devices left: its other cells have or get shelf.gpu-0: "
        "so says the last hello of agent rack"
    )


@pytest.mark.parametrize("parked", [False, True])
def test_where_the_only_agent_lost_its_device_a_parked_campaign_waits_on(database, job, parked):
    inbox = Inbox(AvailableDevices(silence_s=None), sole=True, patience_s=30.0, heartbeat_s=5.0)
    with database.write() as turn:
        turn.campaign(turn.cell(job.cell_id).campaign_no).parked = parked
    gone = HELLO.message.model_copy(update={"devices": ()})
    ended = result(job, Status.FAILED, ReasonCode.INTERRUPTED)
    apply(database, inbox, MessageReceived("rack", gone), MessageReceived("rack", ended))
    assert cells(database)[0].state == ("queued" if parked else "unsupported")


def test_an_attempt_of_another_agent_is_left_alone(database, inbox, job):
    assert apply(database, inbox, MessageReceived("thief", result(job))) == FollowUp()
    assert cells(database)[0].state == "running"


def test_a_removed_agent_is_told_to_end(database, inbox, job):
    with database.write() as turn:
        agents.set_state(turn, "rack", tables.AGENT_REMOVED)
    assert apply(database, inbox, HELLO) == FollowUp((("rack", Shutdown()),))


def test_nothing_of_a_revoked_agent_is_applied_or_answered(database, inbox, job):
    now = datetime.now(UTC)
    with database.write() as turn:
        credentials.add(turn, "rack", SigningKey.new().public, "0" * 64, "0" * 64, now)
        credentials.revoke_all(turn, "rack", now)
        agents.set_state(turn, "rack", tables.AGENT_REMOVED)
    late = (result(job), beat(job), AgentAlive(waiting=1))
    events = [MessageReceived("rack", message) for message in late]
    assert apply(database, inbox, HELLO, *events, IncompatibleHello("rack", 1)) == FollowUp()
    assert cells(database)[0].state == "running"


def test_an_agent_of_another_protocol_is_refused_until_it_says_hello_in_the_farms(database, inbox, job):
    found = apply(database, inbox, IncompatibleHello("rack", 1))
    ((name, reply),) = found.replies
    assert (name, type(reply)) == ("rack", Upgrade)
    started = MessageReceived("rack", JobStarted(attempt_id=job.attempt_id, epoch=job.epoch))
    assert apply(database, inbox, started) == FollowUp()
    apply(database, inbox, HELLO)
    assert apply(database, inbox, started).news


def test_a_farm_that_was_restored_goes_on_behind_the_epochs_that_its_agents_have_seen(database, inbox, job):
    seen = HELLO.message.model_copy(update={"epochs": {"rack.gpu-0": 90, "other.gpu-0": 99}})
    apply(database, inbox, MessageReceived("rack", seen))
    apply(
        database,
        inbox,
        MessageReceived("rack", HELLO.message.model_copy(update={"epochs": {"rack.gpu-0": 3}})),
    )
    with database.read() as session:
        assert session.get_one(tables.Device, "rack.gpu-0").epoch == 90
