"""Envelopes that name their sender."""

from __future__ import annotations

import json


class NamedSeal:
    """Names the agent of a message."""

    def seal(self, agent_id: str, payload: bytes) -> str:
        """An envelope around one message, for one agent."""
        return json.dumps({"agent_id": agent_id, "payload": payload.decode()})

    def open(self, envelope: str) -> tuple[str, bytes]:
        """The agent and its message. Raises `ValueError`."""
        try:
            found = json.loads(envelope)
            return str(found["agent_id"]), str(found["payload"]).encode()
        except (TypeError, KeyError) as error:
            raise ValueError("no envelope") from error
