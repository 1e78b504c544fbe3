"""The farm's end of a real Redis: what is acknowledged when, and whose word is believed."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from kombu import Connection, Producer

from agent.wire.bounded import Wire
from agent.wire.credentials import Applicant
from agent.wire.envelope import seal
from agent.wire.messages import AgentAlive, AgentHello, encode
from agent.wire.queue import INGEST_TASK, INGEST_UNACKED_KEY, ingest_queue, publish
from orchestrator.config.lab import LabTimes
from orchestrator.dispatch.base import MessageReceived
from orchestrator.dispatch.lab import LabDispatcher
from orchestrator.trust import enrolment
from orchestrator.trust.farm_key_rotation import FarmKeyFolder
from orchestrator.trust.signing import AgentKeys, FarmSeal

PREFIX = "farm:"


@pytest.fixture
def rack(database) -> Applicant:
    """Return the secrets of the enrolled agent `rack`."""
    applicant = Applicant.new()
    with database.write() as turn:
        now = datetime.now(UTC)
        token = enrolment.invite(turn, "rack", "0" * 16, now)
        enrolment.enrol(turn, enrolment.Request.read(applicant.request(token)), now)
    return applicant


@pytest.fixture
def dispatcher(tmp_path, database, redis_server):
    seals = FarmSeal(FarmKeyFolder(tmp_path / "keys").keys, AgentKeys(database))
    # No ping of its own comes between the messages, however long a test takes.
    made = LabDispatcher(redis_server.socket_url, PREFIX, seals, LabTimes(watchdog_s=86_400.0))
    yield made
    made.close()


@pytest.fixture
def say(rack, redis_server):
    """Put a message of `rack` into the queue of the farm."""

    def said(message: Wire) -> None:
        envelope = seal(rack.key, "rack", encode(message).rstrip(), time.time())
        options = {"global_keyprefix": PREFIX}
        with Connection(redis_server.socket_url, transport_options=options) as connection:
            publish(Producer(connection.channel()), INGEST_TASK, ingest_queue("rack"), envelope)

    return said


def test_a_word_that_comes_back_through_the_broker_tells_how_long_it_took(tmp_path, database, redis_server):
    told: list[float] = []
    seals = FarmSeal(FarmKeyFolder(tmp_path / "keys").keys, AgentKeys(database))
    times = LabTimes(watchdog_s=3.0)
    made = LabDispatcher(redis_server.socket_url, PREFIX, seals, times, came_back=told.append)
    began = time.monotonic()
    try:
        while not told and time.monotonic() < began + 60.0:
            made.events(0.1)
    finally:
        made.close()
    assert 0 < told[0] < time.monotonic() - began


def received(dispatcher) -> list[MessageReceived]:
    until = time.monotonic() + 60.0
    while time.monotonic() < until:
        found = [event for event in dispatcher.events(0.2) if isinstance(event, MessageReceived)]
        if found:
            return found
    return []


def test_the_broker_keeps_a_message_until_the_caller_has_stored_it(dispatcher, say, redis_server):
    say(AgentAlive(waiting=1))
    assert received(dispatcher) == [MessageReceived("rack", AgentAlive(waiting=1))]
    client = redis_server.client()
    assert client.hlen(PREFIX + INGEST_UNACKED_KEY) == 1
    dispatcher.events(0.01)
    assert client.hlen(PREFIX + INGEST_UNACKED_KEY) == 0


def test_a_hello_in_the_name_of_another_agent_is_dropped_and_the_next_message_read(dispatcher, say, caplog):
    say(AgentHello(agent_id="other", host="h", version="0", devices=()))
    say(AgentAlive(waiting=7))
    assert received(dispatcher) == [MessageReceived("rack", AgentAlive(waiting=7))]
    assert "agent rack calls itself other" in caplog.text
