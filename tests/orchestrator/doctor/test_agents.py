"""`farm doctor` on the agents of a lab."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.wire.credentials import Applicant
from agent.wire.envelope import SigningKey
from agent.wire.messages import AgentAlive, AgentHello
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.devices import agents, credentials, devices
from orchestrator.dispatch.base import MessageReceived
from orchestrator.doctor.lab import UNDELIVERED_S, agent_checks
from orchestrator.scheduling.available_devices import AvailableDevices
from orchestrator.scheduling.inbox import Inbox
from orchestrator.trust import enrolment
from tests.orchestrator.asked import CPU
from tests.orchestrator.stocked import cells, dispatch, result, stock

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(seconds=2 * UNDELIVERED_S)
FARM = SigningKey.new()


@pytest.fixture(autouse=True)
def _clock_stands(monkeypatch):
    """Let the doctor look at the moment of the heartbeats, however long ago this module was read."""
    monkeypatch.setattr("orchestrator.doctor.lab.utc_now", lambda: NOW)


def join(database, name, heard_at=NOW):
    """Enrol an agent, which then says hello."""
    device = CPU.model_copy(update={"device_id": f"{name}.host-cpu"})
    hello = AgentHello(agent_id=name, host=f"{name}.lab", version="0", devices=(device,))
    with database.write() as turn:
        token = enrolment.invite(turn, name, FARM.public.key_id, NOW)
        enrolment.enrol(turn, enrolment.Request.read(Applicant.new().request(token)), NOW)
        devices.record_hello(turn, hello, heard_at, sole=False)
        agents.note_heard(turn, {name: heard_at})


def look(database):
    return {c.name: (c.ok, c.found, c.fix) for c in agent_checks(LabConfig(), database)}


def say(database, name, *messages, at=NOW):
    inbox = Inbox(AvailableDevices(silence_s=60.0), sole=False, patience_s=10.0, heartbeat_s=10.0)
    with database.write() as turn:
        inbox.apply(turn, [MessageReceived(name, message) for message in messages], at)


def test_each_agent_is_named_by_its_standing_and_a_removed_one_does_not_work(database):
    for name in ("works", "drains", "gone", "shut-out"):
        join(database, name)
    join(database, "silent", heard_at=LONG_AGO)
    join(database, "old")
    with database.write() as turn:
        agents.set_state(turn, "drains", tables.AGENT_DRAINING)
        agents.set_state(turn, "gone", tables.AGENT_REMOVED)
        agents.set_state(turn, "shut-out", tables.AGENT_REMOVED)
        credentials.revoke_all(turn, "shut-out", NOW)
        agents.refuse(turn, "old", 1, "it speaks protocol 1", NOW)
    found = look(database)
    assert found["agents"][:2] == (True, "working: works; draining: drains; removed: gone; revoked: shut-out")
    assert found["agent silent"][0] is False
    assert found["agent silent"][1].startswith("silent; last heartbeat: ")
    assert found["agent old"][1] == "refused: it speaks protocol 1"
    assert set(found) == {"agents", "agent silent", "agent old"}


def test_a_lab_whose_last_agent_was_revoked_is_not_well(database):
    join(database, "rack-1")
    with database.write() as turn:
        agents.set_state(turn, "rack-1", tables.AGENT_REMOVED)
        credentials.revoke_all(turn, "rack-1", NOW)
    ok, found, fix = look(database)["agents"]
    assert (ok, found) == (False, "none is left; revoked: rack-1")
    assert "farm lab agents enrol" in fix


@pytest.mark.parametrize("since", [LONG_AGO, NOW])
def test_results_that_no_receipt_answers_are_a_fault_once_they_were_sent_many_times(database, since):
    join(database, "rack-1")
    say(database, "rack-1", AgentAlive(waiting=2), at=since)
    say(database, "rack-1", AgentAlive(waiting=1))
    found = look(database)
    if since == NOW:
        assert found["agents"][1] == "working: rack-1"
        return
    ok, said, fix = found["agent rack-1"]
    assert not ok
    assert f"without a receipt since {since:%Y-%m-%d %H:%M:%S}" in said
    assert "link/log" in fix
    say(database, "rack-1", AgentAlive(waiting=0))
    assert look(database)["agents"][1] == "working: rack-1"


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(hours=2), "its clock is 2 h 0 min ahead of the server's"),
        (-timedelta(minutes=90), "its clock is 1 h 30 min behind the server's"),
        (-timedelta(minutes=5), "its clock is 5 min behind the server's"),
        (timedelta(seconds=20), None),
    ],
)
def test_a_clock_that_is_off_is_a_fault_until_it_is_set(database, ahead, said):
    join(database, "rack-1")
    for clock in (NOW + ahead, NOW):
        say(database, "rack-1", AgentAlive(clock_ns=int(clock.timestamp() * 1e9)))
        found = look(database)
        if said is None or clock == NOW:
            assert found["agents"][:2] == (True, "working: rack-1")
        else:
            ok, text, fix = found["agent rack-1"]
            assert (ok, text.startswith(said), "\n" in text) == (False, True, False)
            assert fix.startswith("on rack-1.lab: timedatectl set-ntp true")


def test_the_clock_of_a_silent_agent_is_not_judged_by_a_heartbeat_that_may_have_waited(database):
    join(database, "rack-1", heard_at=LONG_AGO)
    say(database, "rack-1", AgentAlive(clock_ns=int((NOW - timedelta(hours=2)).timestamp() * 1e9)))
    assert [check.found[:6] for check in agent_checks(LabConfig(), database)] == ["silent"]


def test_a_result_that_was_not_stored_is_a_fault_with_the_way_to_measure_again(database):
    join(database, "rack-1")
    stock(database)
    job = dispatch(database, cells(database)[0].cell_id)
    unknown = result(job).model_copy(update={"attempt_id": "0" * 26})
    say(database, "rack-1", unknown)
    ok, found, fix = look(database)["agent rack-1"]
    assert not ok
    assert found.startswith("results that were not stored: 1, the last at ")
    assert "--force" in fix
