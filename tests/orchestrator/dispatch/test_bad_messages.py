"""Messages that no agent of ours sends, through a real Redis: they cost little memory, and stop no others."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
import textwrap
import time
import uuid
import zlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from kombu import Producer

from agent.link.broker import AgentBroker
from agent.wire import queue
from agent.wire.envelope import SigningKey, open_envelope, seal
from agent.wire.messages import AgentAlive, encode
from orchestrator.config.lab import LabTimes
from orchestrator.dispatch.base import MessageReceived
from orchestrator.dispatch.lab import LabDispatcher
from tests.needs import REPOSITORY

HUGE_BYTES = 100_000_000
GROWTH_KIB = 48 * 1024
"""What a scheduler's memory may grow by at a message of 100 MB: less than half of the message."""
MEASURE = """\
import sys, time
from tests.orchestrator.dispatch.test_bad_messages import dispatcher, SigningKey

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

made = dispatcher(sys.argv[1], SigningKey.new())
made.events(0.2)
print(peak(), flush=True)
sys.stdin.readline()
until = time.monotonic() + 60
while made._broker._connection.default_channel.client.llen("agent.rack.ingest") and time.monotonic() < until:
    made.events(0.2)
made.events(0.2)
print(peak(), flush=True)
"""


@dataclass
class Keys:
    """The signatures of one agent, checked as the farm does."""

    key: SigningKey
    farm: SigningKey = field(default_factory=SigningKey.new)

    def seal(self, agent_id: str, payload: bytes) -> str:
        return seal(self.farm, agent_id, payload, time.time())

    def open(self, envelope: str) -> tuple[str, bytes]:
        opened = open_envelope(envelope, self.key.public)
        return opened.agent_id, opened.payload

    def agents(self) -> frozenset[str]:
        return frozenset({"rack", "rogue"})

    def pending(self) -> list[tuple[str, str]]:
        return []


def dispatcher(url: str, key: SigningKey) -> LabDispatcher:
    """One that sends no ping of its own, which would be a message more, however long a test takes."""
    return LabDispatcher(url, "farm:", Keys(key), LabTimes(watchdog_s=86_400.0))


def send_good(server: Any, key: SigningKey, waiting: int = 0) -> None:
    envelope = seal(key, "rack", encode(AgentAlive(waiting=waiting)).rstrip(), time.time())
    with AgentBroker("rack", server.socket_url).ingest_connection() as connection:
        queue.publish(Producer(connection.channel()), queue.INGEST_TASK, queue.ingest_queue("rack"), envelope)


def first_received(made: LabDispatcher) -> list[object]:
    """Return the messages to the farm of the first batch that has some."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if received := [event for event in made.events(1.0) if isinstance(event, MessageReceived)]:
            return received
    return []


def in_celerys_form(body: bytes, **headers: Any) -> bytes:
    """Build a message as Kombu writes it, around any body."""
    fields = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": queue.INGEST_TASK, "id": "x"} | headers,
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": "agent.rack.ingest"},
        },
    }
    return json.dumps(fields).encode()


def nested(count: int) -> bytes:
    return b"[" + b"[]," * count + b"[]]"


BAD = {
    "too long": lambda: b"x" * (queue.MAX_RAW_BYTES + 1),
    "too long, in the middle of a read": lambda: b"\r\n" * (queue.MAX_RAW_BYTES // 2 + 7),
    "many brackets": lambda: nested(1_000_000),
    "deep": lambda: b"[" * 20_000,
    "not text": lambda: b"\xff\xfe",
    "a number of many digits": lambda: b"9" * 20_000,
    "not an object": lambda: b"3",
    "without properties": lambda: b'{"body": "x"}',
    "a body that is not base64": lambda: in_celerys_form(b"").replace(b'"body": ""', b'"body": "?"'),
    "a body of many brackets": lambda: in_celerys_form(b'[["x"], {}, ' + nested(1_000_000) + b"]"),
    "lists as argument": lambda: in_celerys_form(b"[[" + nested(1_000_000) + b"], {}, {}]"),
    "two arguments": lambda: in_celerys_form(b'[["x", "y"], {}, {}]'),
    "another task": lambda: in_celerys_form(b'[["x"], {}, {}]', task="other"),
    "unsigned": lambda: in_celerys_form(b'[["1.0.x.{}"], {}, {}]'),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_message_is_dropped_and_the_next_one_is_received(redis_server, what, caplog) -> None:
    key = SigningKey.new()
    made = dispatcher(redis_server.socket_url, key)
    with redis_server.client() as client, caplog.at_level(logging.WARNING):
        client.lpush("farm:agent.rack.ingest", BAD[what]())
        send_good(redis_server, key, waiting=7)
        assert first_received(made) == [MessageReceived("rack", AgentAlive(waiting=7))]
        assert "dropped" in caplog.text
        assert "the broker is down" not in caplog.text
        made.events(0.1)
        assert client.keys("farm:*ingest*") == [], "nothing is left to be delivered again"
    made.close()


def test_a_compressed_message_is_not_decompressed_not_even_that_of_a_known_agent(
    redis_server, caplog
) -> None:
    key = SigningKey.new()
    envelope = seal(key, "rack", encode(AgentAlive(waiting=1)).rstrip(), time.time())
    body = zlib.compress(json.dumps([[envelope], {}, {}]).encode())
    with redis_server.client() as client:
        client.lpush("farm:agent.rack.ingest", in_celerys_form(body, compression="application/x-gzip"))
    send_good(redis_server, key, waiting=2)
    made = dispatcher(redis_server.socket_url, key)
    assert first_received(made) == [MessageReceived("rack", AgentAlive(waiting=2))]
    assert "its body is compressed" in caplog.text
    made.close()


@pytest.mark.slow
def test_a_message_of_100_mb_does_not_reach_the_memory_of_the_scheduler(redis_server) -> None:
    command = [sys.executable, "-c", textwrap.dedent(MEASURE), redis_server.socket_url]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = int(process.stdout.readline())
        with redis_server.client() as client:
            client.lpush("farm:agent.rack.ingest", in_celerys_form(b"x" * (HUGE_BYTES // 4 * 3)))
        process.stdin.write("\n")
        process.stdin.flush()
        after = int(process.stdout.readline())
    assert after - before < GROWTH_KIB


def test_the_log_of_a_flood_is_bounded_and_a_flood_is_dropped_whole(redis_server, caplog) -> None:
    key, made = SigningKey.new(), None
    with redis_server.client() as client, caplog.at_level(logging.WARNING):
        for message in (in_celerys_form(b'[["1.0.x.{}"], {}, {}]'), b"garbage"):
            client.lpush("farm:agent.rack.ingest", *[message] * 300)
        send_good(redis_server, key)
        made = dispatcher(redis_server.socket_url, key)
        assert len(first_received(made)) == 1
        assert len([r for r in caplog.records if "dropped" in r.getMessage()]) <= 12
        made.close()


def test_a_flood_of_one_agent_delays_no_other_agent(redis_server) -> None:
    key = SigningKey.new()
    bad = in_celerys_form(b'[["1.0.x.{}"], {}, {}]')
    with redis_server.client() as client:
        for _ in range(20):
            client.lpush("farm:agent.rogue.ingest", *[bad] * 1000)
        for number in range(5):
            send_good(redis_server, key, waiting=number)
        made = dispatcher(redis_server.socket_url, key)
        received: list[object] = []
        while len(received) < 5 and client.llen("farm:agent.rogue.ingest"):
            received += [event for event in made.events(1.0) if isinstance(event, MessageReceived)]
        assert received == [MessageReceived("rack", AgentAlive(waiting=number)) for number in range(5)]
        assert client.llen("farm:agent.rogue.ingest"), "they did not wait for the flood"
        made.close()


def test_the_farms_own_ping_is_not_behind_a_flood(redis_server) -> None:
    with redis_server.client() as client:
        for _ in range(20):
            client.lpush("farm:agent.rack.ingest", *[b"x"] * 1000)
        made = dispatcher(redis_server.socket_url, SigningKey.new())
        made.events(0.1)
        assert made._broker is not None
        made._ping = queue.new_ping()
        made._broker.ping(made._ping)
        while made._ping and client.llen("farm:agent.rack.ingest"):
            made.events(0.5)
        assert made._ping == ""
        assert client.llen("farm:agent.rack.ingest"), "it did not wait for the flood"
        made.close()


def test_a_sender_cannot_say_where_its_message_is_put_back(redis_server) -> None:
    key = SigningKey.new()
    envelope = seal(key, "rack", encode(AgentAlive()).rstrip(), time.time())
    fields = json.loads(in_celerys_form(json.dumps([[envelope], {}, {}]).encode()))
    fields["properties"]["delivery_info"]["routing_key"] = "agent.other.jobs"
    with redis_server.client() as client:
        client.lpush("farm:agent.rack.ingest", json.dumps(fields))
        made = dispatcher(redis_server.socket_url, key)
        assert first_received(made) == [MessageReceived("rack", AgentAlive())]
        assert made._broker is not None
        made._broker.close()  # without an acknowledgement, as after a crash
        assert client.keys("farm:agent.other.*") == []
        assert client.llen("farm:agent.rack.ingest") == 1
