"""Envelopes of a lab: signed by the farm on the way down, by a known agent on the way up."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agent.envelope import SigningKey, Stamps, seal
from orchestrator.trust.keyring import Keyring


@dataclass(frozen=True, slots=True)
class SignedSeal:
    """For the thread that speaks with the broker."""

    key: SigningKey = field(repr=False)
    keyring: Keyring
    stamps: Stamps = field(default_factory=Stamps)

    def seal(self, agent_id: str, payload: bytes) -> str:
        """An envelope around one message, for one agent."""
        return seal(self.key, agent_id, payload, self.stamps.now())

    def open(self, envelope: str) -> tuple[str, bytes]:
        """The agent that signed, and its message. Raises `ValueError`."""
        opened = self.keyring.open(envelope)
        return opened.agent_id, opened.payload


class NamedSeal:
    """Names the agent of a message and signs nothing."""

    def seal(self, agent_id: str, payload: bytes) -> str:
        """An envelope around one message, for one agent."""
        return json.dumps({"agent_id": agent_id, "payload": payload.decode()})

    def open(self, envelope: str) -> tuple[str, bytes]:
        """The agent and its message. Raises `ValueError`."""
        try:
            found = json.loads(envelope)
            return str(found["agent_id"]), str(found["payload"]).encode()
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError("no envelope") from error
