"""Knows which devices may get work: present ones of a willing agent that sent a message lately."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.db.devices.agents import Member


@dataclass(slots=True)
class AvailableDevices:
    """A copy in memory of the stored devices, and of when each agent last sent a message.

    `silence_s` None: there is one agent, a child whose death is noticed at once; its silence means nothing.
    """

    silence_s: float | None
    _members: dict[str, Member] = field(default_factory=dict)
    _of_agent: dict[str, list[str]] = field(default_factory=dict)
    _heard: dict[str, datetime] = field(default_factory=dict)
    _saved: dict[str, datetime] = field(default_factory=dict)

    def refresh(self, members: Iterable[Member]) -> None:
        """Replace the copy by the database's present content; a newer sign of life is kept."""
        self._members = {member.device_id: member for member in members}
        grouped: dict[str, list[str]] = defaultdict(list)
        for member in self._members.values():
            grouped[member.agent_id].append(member.device_id)
            # For the one embedded agent only a hello counts: the stored time may be of an earlier process.
            if member.heard_at is not None and self.silence_s is not None:
                known = self._heard.get(member.agent_id, member.heard_at)
                self._heard[member.agent_id] = max(known, member.heard_at)
        self._of_agent = dict(grouped)

    def note_heard(self, agent_id: str, now: datetime) -> None:
        """Note a sign of life of an agent."""
        self._heard[agent_id] = now

    def unsaved(self, older_than: timedelta) -> dict[str, datetime]:
        """Return agents whose last sign of life is that much newer than the stored one, for storing."""
        found = {
            name: at
            for name, at in self._heard.items()
            if name not in self._saved or at - self._saved[name] >= older_than
        }
        self._saved.update(found)
        return found

    def forget_agents(self) -> None:
        """Forget all signs of life: the one agent has ended; its devices return with its next hello."""
        self._heard.clear()

    def usable(self, now: datetime) -> list[str]:
        """Every device that may get work."""
        return [name for agent_id in self._of_agent for name in self._usable_of(agent_id, now)]

    def beside(self, device_ids: Iterable[str], now: datetime) -> list[str]:
        """Return the usable devices on the same hosts: work on one of them may have kept another waiting."""
        agents = {self._members[name].agent_id for name in device_ids if name in self._members}
        return [name for agent_id in sorted(agents) for name in self._usable_of(agent_id, now)]

    def _usable_of(self, agent_id: str, now: datetime) -> Sequence[str]:
        heard = self._heard.get(agent_id)
        if heard is None:
            return ()
        if self.silence_s is not None and now - heard > timedelta(seconds=self.silence_s):
            return ()
        return [name for name in self._of_agent[agent_id] if self._members[name].willing]
