"""Envelopes of a lab: signed by the farm on the way down, by a known agent on the way up."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.wire.envelope import IssueClock, keys_message, seal
from orchestrator.trust.agent_keys import AgentKeys
from orchestrator.trust.farm_key_rotation import FarmKeys

TOLD_EVERY_S: Final = 2.0
"""Between two times that an agent is told of the farm's keys, until it says that it trusts them."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class FarmSeal:
    """For the thread that speaks with the broker. `keys`: the farm's own that are good now.

    Each envelope of an agent names the keys of the farm that it trusts. Where these are not the farm's, the
    agent is told which are; it is spoken to with a key that it trusts.
    """

    keys: Callable[[], FarmKeys]
    agent_keys: AgentKeys
    clock: IssueClock = field(default_factory=IssueClock)
    _trusted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _behind: set[str] = field(default_factory=set)
    _told_s: dict[str, float] = field(default_factory=dict)

    def seal(self, agent_id: str, payload: bytes) -> str:
        """An envelope around one message, for one agent."""
        key = self.keys().signing_for(self._trusted.get(agent_id, ()))
        return seal(key, agent_id, payload, self.clock.now())

    def open(self, envelope: str) -> tuple[str, bytes]:
        """The agent that signed, and its message. Raises `ValueError`."""
        opened = self.agent_keys.open(envelope)
        self._note(opened.agent_id, opened.farm)
        return opened.agent_id, opened.payload

    def owed(self) -> Sequence[tuple[str, str]]:
        """Envelopes of the seal's own, by agent: which keys of the farm are good now."""
        if not self._behind:
            return ()
        now_s, message = time.monotonic(), keys_message(self.keys().public)
        due = [name for name in self._behind if now_s - self._told_s.get(name, -TOLD_EVERY_S) >= TOLD_EVERY_S]
        self._told_s |= dict.fromkeys(due, now_s)
        self._behind.clear()
        return [(name, self.seal(name, message)) for name in sorted(due)]

    def _note(self, agent_id: str, trusted: tuple[str, ...]) -> None:
        """What an agent says that it trusts. Raises `ValueError` where nothing that is said to it counts."""
        good = set(self.keys().ids)
        if trusted and not good.intersection(trusted):
            raise ValueError(
                f"agent {agent_id} trusts key {' and '.join(trusted)[:64]} of the farm alone, "
                f"which was retired; give it new secrets: farm agents rotate {agent_id}"
            )
        if trusted and set(trusted) != good:
            self._behind.add(agent_id)
        elif self._told_s.pop(agent_id, None) is not None:
            log.info("agent %s trusts the farm's keys: %s", agent_id, ", ".join(trusted))
        self._trusted[agent_id] = trusted
