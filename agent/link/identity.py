"""Who this agent is in a lab: its name, its way to the broker, its seal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agent.link.bridge import Seal
from agent.link.broker import Broker
from agent.link.couriers import Artifacts, SharedStore


@dataclass(frozen=True, slots=True)
class Identity:
    """What a link needs to speak for its agent."""

    broker: Broker
    seal: Seal
    artifacts: Artifacts


@dataclass(frozen=True, slots=True)
class NamedSeal:
    """Names the sender."""

    agent_id: str

    def seal(self, payload: bytes) -> str:
        """An envelope around one message."""
        return json.dumps({"agent_id": self.agent_id, "payload": payload.decode()})

    def open(self, envelope: str) -> bytes:
        """The message in an envelope. Raises `ValueError`."""
        found = json.loads(envelope)
        return str(found["payload"]).encode()


def load(state: Path) -> Identity:
    """Read it from the agent's state folder. Raises `OSError` or `ValueError`."""
    said = json.loads((state / "credentials.json").read_text())
    broker = Broker(said["agent_id"], said["broker_url"], said.get("key_prefix", "farm:"))
    return Identity(broker, NamedSeal(broker.agent_id), SharedStore())
