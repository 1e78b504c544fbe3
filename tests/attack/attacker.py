"""Writes as an attacker with an agent's credentials: envelopes, and messages as they lie in Redis."""

from __future__ import annotations

import base64
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from agent.wire.credentials import Credentials
from agent.wire.envelope import LIFETIME_S, SigningKey, seal
from agent.wire.messages import PROTOCOL_VERSION
from agent.wire.queue import INGEST_TASK, MESSAGE_TASK, agent_queue, ingest_queue
from agent.wire.service_urls import for_ingest
from tests.attack.lab import PATIENCE_S, PROMPT_S, ROGUE, WITNESS, AttackLab

SIGNED = b"delegate-farm envelope 1\n"
"""What an envelope's signature covers in front of its body."""
BATCH = 500
"""Messages of one command to Redis."""
_numbers = itertools.count(1)


def queued(
    envelope: object, queue: str = ingest_queue(ROGUE), task: str = INGEST_TASK, **properties: Any
) -> bytes:
    """Build a message in the form that Kombu gives it in Redis."""
    call = [[envelope], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    return wrapped(json.dumps(call).encode(), queue, task, **properties)


def wrapped(
    body: bytes, queue: str = ingest_queue(ROGUE), task: str = INGEST_TASK, **properties: Any
) -> bytes:
    """Build a message like `queued`, around any body."""
    name = str(uuid.uuid4())
    own = {
        "correlation_id": name,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": name,
    }
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": task, "id": name, "root_id": name, "parent_id": None},
        "properties": own | properties,
    }
    return json.dumps(message).encode()


def signed(key: SigningKey, body: str) -> str:
    """Seal any body, even one that the product would refuse to sign."""
    signature = base64.urlsafe_b64encode(key.sign(SIGNED + body.encode())).decode().rstrip("=")
    return f"1.{key.public.key_id}.{signature}.{body}"


def head(sender_id: str, message: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the fields of an envelope's body; `changes` replace some, None takes one out."""
    now = time.time()
    fields = {
        "v": 1,
        "kind": message.get("type"),
        "agent_id": sender_id,
        "issued": now,
        "expires": now + LIFETIME_S,
        "nonce": uuid.uuid4().hex,
        "payload": dict(message),
    }
    fields |= {name: message[name] for name in ("attempt_id", "device_id", "epoch") if name in message}
    return {name: value for name, value in (fields | changes).items() if value is not None}


def nested(depth: int, kind: str = "list") -> str:
    """JSON of this depth."""
    left, right = ("[", "]") if kind == "list" else ('{"x":', "}")
    return left * depth + "1" + right * depth


def hello(agent_id: str, **changes: Any) -> dict[str, Any]:
    """Build a hello without devices; `changes` replace its fields."""
    fields = {
        "type": "hello",
        "protocol": PROTOCOL_VERSION,
        "agent_id": agent_id,
        "host": "h",
        "version": "1",
        "devices": [],
    }
    return fields | changes


def device(agent_id: str, tail: str = "cpu", **changes: Any) -> dict[str, Any]:
    """Build a device of a hello."""
    fields = {
        "device_id": f"{agent_id}.{tail}",
        "kind": "cpu",
        "api": "host",
        "name": "a processor",
        "delegates": ["cpu"],
        "exclusion_group": f"{agent_id}-{tail}",
        "environment": {"cpu": "x"},
    }
    return fields | changes


@dataclass
class Sender:
    """Adds to an agent's ingest list with its credentials."""

    credentials: Credentials
    client: redis.Redis

    @property
    def key(self) -> SigningKey:
        return SigningKey.read(self.credentials.signing_key)

    @property
    def key_of_list(self) -> str:
        return f"farm:{ingest_queue(self.credentials.agent_id)}"

    def put(self, *messages: bytes) -> None:
        """Raw bytes, in few round trips."""
        for start in range(0, len(messages), BATCH):
            self.client.lpush(self.key_of_list, *messages[start : start + BATCH])

    def envelopes(self, *envelopes: str) -> None:
        to = ingest_queue(self.credentials.agent_id)
        self.put(*(queued(envelope, to) for envelope in envelopes))

    def say(self, *messages: Mapping[str, Any]) -> None:
        """Sealed as the agent seals its own."""
        key, name = self.key, self.credentials.agent_id
        self.envelopes(*(seal(key, name, json.dumps(m).encode(), time.time()) for m in messages))


@contextmanager
def sender(lab: AttackLab, name: str) -> Iterator[Sender]:
    """To the ingest list, as an agent."""
    found = lab.credentials_of(name)
    with lab.as_user(for_ingest(found.broker_url)) as client:
        yield Sender(found, client)


def witness_is_heard(lab: AttackLab, seconds: float = PROMPT_S) -> None:
    """Check that a hello of another agent, sent now, is applied within so long."""
    host = f"host-{next(_numbers)}"
    with sender(lab, WITNESS) as good:
        good.say(hello(WITNESS, host=host))
    applied = f"SELECT 1 FROM agent WHERE agent_id = '{WITNESS}' AND host = '{host}'"
    lab.within(seconds, lambda: lab.rows(applied), "a good message of another agent is applied")


def introduce(lab: AttackLab, said: Sender) -> None:
    """Make this agent known to the farm, by a hello without devices; what it knew before is replaced."""
    name = said.credentials.agent_id
    said.say(hello(name))
    known = f"SELECT 1 FROM agent WHERE agent_id = '{name}' AND host = 'h'"
    lab.within(PATIENCE_S, lambda: lab.rows(known), f"a hello of {name} is applied")


def all_is_handled(lab: AttackLab, said: Sender) -> None:
    """Whatever this agent sent before is applied or refused. The farm must know the agent: `introduce`.

    The lists of the agents are read in turn, so a witness may overtake; within a list the order holds. Two
    messages, because of `alive` only a change is stored, and an earlier test may have left either state.
    """
    name = said.credentials.agent_id
    for waiting, stored in ((0, "IS NULL"), (1, "IS NOT NULL")):
        said.say({"type": "alive", "waiting": waiting})
        applied = f"SELECT 1 FROM agent WHERE agent_id = '{name}' AND undelivered_since {stored}"
        lab.within(
            PATIENCE_S, lambda applied=applied: lab.rows(applied), f"{name} has {waiting} results waiting"
        )


def to_agent(lab: AttackLab, name: str, *messages: bytes) -> None:
    """Into an agent's queue, as whoever owns the broker."""
    with lab.as_admin() as admin:
        for message in messages:
            admin.lpush(f"farm:{agent_queue(name)}", message)


def for_agent(name: str, envelope: object) -> bytes:
    """Build a message as it lies in an agent's queue."""
    return queued(envelope, agent_queue(name), MESSAGE_TASK)
