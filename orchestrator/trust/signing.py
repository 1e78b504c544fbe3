"""Signs envelopes to agents, and checks the signatures of envelopes from known agents."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.wire.envelope import (
    Envelope,
    Freshness,
    IssueClock,
    PublicKey,
    key_id_of,
    keys_message,
    open_envelope,
    seal,
)
from orchestrator.config.clock import utc_now
from orchestrator.db.devices import credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UnreachableError
from orchestrator.trust.farm_key_rotation import FarmKeys

REFRESH_S: Final = 1.0
"""Seconds between two reads of the database, and so how long a revoked key can still be accepted. Smaller
costs more queries; larger lets a revoked agent continue."""
STRANGER_S: Final = 0.02
"""Least seconds between two reads where a key is unknown. It may be that of an agent enrolled just now,
whose hello must not be lost; the bound keeps a stranger's messages from costing a query each."""
SAVE_S: Final = 10.0
"""Seconds between two writes of the newest `issued` of each agent. After a crash, expiry
is judged by a time that is too old by at most this; smaller costs more transactions."""


@dataclass(slots=True)
class _Key:
    agent_id: str
    public: PublicKey
    fresh: Freshness


@dataclass(slots=True)
class AgentKeys:
    """Checks the signatures of agents' envelopes, for one thread."""

    database: Database
    _keys: dict[str, _Key] = field(default_factory=dict)
    _saved: dict[str, float] = field(default_factory=dict)
    _read_at_s: float = float("-inf")
    _saved_at_s: float = field(default_factory=time.monotonic)

    def open(self, envelope: str) -> Envelope:
        """Open an envelope that a known agent signed, neither expired nor a replay. Raises `ValueError`."""
        key_id = key_id_of(envelope)
        self._refresh(REFRESH_S if key_id in self._keys else STRANGER_S)
        key = self._keys.get(key_id)
        if key is None:
            raise ValueError(f"signed with key {key_id[:16]!r}, which is no enrolled agent's, or was revoked")
        opened = open_envelope(envelope, key.public)
        # The database says whose key it is, not the envelope that was signed with it.
        if opened.agent_id != key.agent_id:
            raise ValueError(f"agent {key.agent_id} signs for another: {opened.agent_id[:64]!r}")
        try:
            key.fresh.accept(opened)
        except ValueError as error:
            raise ValueError(f"{opened.kind[:32]} of agent {key.agent_id}: {error}") from error
        return opened

    def agents(self) -> frozenset[str]:
        """Return the agents that have a valid key, as read at most `REFRESH_S` ago."""
        self._refresh(REFRESH_S)
        return frozenset(key.agent_id for key in self._keys.values())

    def save(self) -> None:
        """Store the newest `issued` of each agent, by which a restart judges which envelopes have expired."""
        # Also for a write that fails: the next one is due after `SAVE_S`, not with the next envelope.
        self._saved_at_s = time.monotonic()
        newest = {name: key.fresh.newest for name, key in self._keys.items()}
        changed = {name: issued for name, issued in newest.items() if issued > self._saved.get(name, 0.0)}
        if not changed:
            return
        with self.database.write() as turn:
            credentials.note_newest(turn, changed)
        self._saved |= changed

    def _refresh(self, every_s: float) -> None:
        """Read the keys when a read is due. While the database does not answer, the known keys are used."""
        if time.monotonic() - self._read_at_s < every_s:
            return
        try:
            with self.database.read() as session:
                found = credentials.valid(session, utc_now())
            if time.monotonic() - self._saved_at_s > SAVE_S:
                self.save()
        except UnreachableError as error:
            log.debug("the keys of agents cannot be read: %s", error)
        else:
            self._keep({entry.key_id: entry for entry in found})
        # Also after a failure: an unreachable database must not be queried once per envelope.
        self._read_at_s = time.monotonic()

    def _keep(self, found: dict[str, credentials.Known]) -> None:
        for gone in self._keys.keys() - found.keys():
            log.warning("key %s of agent %s is no longer valid", gone, self._keys.pop(gone).agent_id)
        # A key that stays keeps its `Freshness`, which knows more than the database.
        for name in found.keys() - self._keys.keys():
            entry = found[name]
            try:
                public = PublicKey.read(entry.public_key)
            except ValueError as error:
                log.error("the database holds no usable key of agent %s: %s", entry.agent_id, error)
                continue
            self._keys[name] = _Key(entry.agent_id, public, Freshness(entry.newest_issued))
            self._saved[name] = entry.newest_issued


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
        # An agent without an announcement so far gets one at once.
        due = [
            name for name in self._behind if now_s - self._announced_s.get(name, -ANNOUNCE_S) >= ANNOUNCE_S
        ]
        self._announced_s |= dict.fromkeys(due, now_s)
        # An agent whose announcement is not due yet is put in again by its next envelope.
        self._behind.clear()
        # Sealed for each agent by itself, with the newest key that this one trusts.
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
