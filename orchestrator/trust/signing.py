"""Signs envelopes to agents, and checks the signatures of envelopes from known agents."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.wire.envelope import IssueClock, keys_message, seal
from orchestrator.trust.agent_keys import AgentKeys
from orchestrator.trust.farm_key_rotation import FarmKeys

ANNOUNCE_S: Final = 2.0
"""Seconds between two announcements of the farm's keys to an agent that does not trust exactly these. Several
envelopes of an agent can be under way when it learns the keys; smaller would answer each with another one."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FarmSeal:
    """Signs and checks envelopes, for the thread that uses the broker. `keys` returns the farm's valid keys.

    Each envelope of an agent names the keys of the farm that it trusts. An agent that does not trust exactly
    the valid ones is sent them, in an envelope that is signed with a key that it trusts.
    """

    keys: Callable[[], FarmKeys]
    agent_keys: AgentKeys
    clock: IssueClock = field(default_factory=IssueClock)
    _trusted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)
    _announced_s: dict[str, float] = field(default_factory=dict)

    def seal(self, agent_id: str, payload: bytes) -> str:
        """Return an envelope around one message, for one agent."""
        key = self.keys().signing_for(self._trusted.get(agent_id, ()))
        return seal(key, agent_id, payload, self.clock.now())

    def open(self, envelope: str) -> tuple[str, bytes]:
        """Return the agent that signed, and its message. Raises `ValueError`."""
        opened = self.agent_keys.open(envelope)
        self._note(opened.agent_id, opened.farm)
        return opened.agent_id, opened.payload

    def agents(self) -> frozenset[str]:
        """Return the agents that have a valid key."""
        return self.agent_keys.agents()

    def pending(self) -> Sequence[tuple[str, str]]:
        """Return announcements of the farm's valid keys that are due, each with its agent."""
        if not self._behind:
            return ()
        now_s, message = time.monotonic(), keys_message(self.keys().public)
        due = [
            name for name in self._behind if now_s - self._announced_s.get(name, -ANNOUNCE_S) >= ANNOUNCE_S
        ]
        self._announced_s |= dict.fromkeys(due, now_s)
        self._behind.clear()
        return [(name, self.seal(name, message)) for name in sorted(due)]

    def _note(self, agent_id: str, trusted: tuple[str, ...]) -> None:
        """Note the keys that an agent trusts. Raises `ValueError` where none of them is valid any more."""
        valid = set(self.keys().ids)
        if trusted and not valid.intersection(trusted):
            raise ValueError(
                f"agent {agent_id} trusts key {' and '.join(trusted)[:64]} of the farm alone, "
                f"which was retired; give it new secrets: farm lab agents rotate {agent_id}"
            )
        if trusted and set(trusted) != valid:
            self._behind.add(agent_id)
        elif self._announced_s.pop(agent_id, None) is not None:
            log.info("agent %s trusts the farm's keys: %s", agent_id, ", ".join(trusted))
        self._trusted[agent_id] = trusted
