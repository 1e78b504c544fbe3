"""Envelopes of one agent: signed by it on the way up, by a trusted key of the farm on the way down."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.link.trusted_farm_keys import TrustedFarmKeys
from agent.wire.credentials import write_secret
from agent.wire.envelope import (
    KEYS_KIND,
    Freshness,
    IssueClock,
    SigningKey,
    key_id_of,
    open_envelope,
    read_keys,
    seal,
)


@dataclass(slots=True)
class AgentSeal:
    """Signs as the agent; opens each envelope that the farm signed for it, but only once.

    `memory`: file with the nonces of opened envelopes, which must survive a restart: a repeated job would
    otherwise run again.
    """

    agent_id: str
    key: SigningKey = field(repr=False)
    farm: TrustedFarmKeys
    memory: Path
    fresh: Freshness = field(default_factory=Freshness)
    clock: IssueClock = field(default_factory=IssueClock)

    def __post_init__(self) -> None:
        self._recall()

    def seal(self, payload: bytes) -> str:
        """Return an envelope around one message."""
        return seal(self.key, self.agent_id, payload, self.clock.now(), self.farm.ids)

    def open(self, envelope: str) -> bytes | None:
        """Return the message in an envelope; None for new keys, which are stored. Raises `ValueError`."""
        opened = open_envelope(envelope, self.farm.named(key_id_of(envelope)))
        if opened.agent_id != self.agent_id:
            raise ValueError(f"it is for agent {opened.agent_id[:64]!r}")
        self.fresh.accept(opened)
        # With a clock behind the farm's, the farm would read this agent's envelopes as older than they are.
        self.clock.advance_to(opened.issued)
        # Remembered before it is handed on: a crash in between loses the message, which the farm repeats in
        # a new envelope; the other order would let the same envelope act twice.
        with self.memory.open("a") as out:
            out.write(_line(self._farm_id, opened.nonce, opened.issued, opened.expires))
        if opened.kind == KEYS_KIND:
            self.farm.replace(read_keys(opened.payload))
            return None
        return opened.payload

    @property
    def _farm_id(self) -> str:
        """Id of the farm; it stays the same when the farm's keys change after the enrolment."""
        return self.farm.enrolled.key_id

    def _recall(self) -> None:
        """Read what was opened before a restart, and keep what has not expired."""
        lines = self.memory.read_text().splitlines() if self.memory.exists() else []
        found = [entry for line in lines if (entry := _entry(line, self._farm_id)) is not None]
        newest = max((issued for _, issued, _ in found), default=0.0)
        self.fresh = Freshness(newest)
        self.clock.advance_to(newest)
        kept = [entry for entry in found if entry[2] >= newest]
        for nonce, issued, expires in kept:
            self.fresh.remember(nonce, issued, expires)
        text = "".join(_line(self._farm_id, *entry) for entry in kept)
        write_secret(self.memory, text)


def _line(farm: str, nonce: str, issued: float, expires: float) -> str:
    return f"{farm} {nonce} {issued!r} {expires!r}\n"


def _entry(line: str, farm: str) -> tuple[str, float, float] | None:
    """Nonce and times of a line; None for a line of another farm, and for one that a crash cut."""
    words = line.split(" ")
    try:
        key_id, nonce, issued, expires = words
        return (nonce, float(issued), float(expires)) if key_id == farm else None
    except ValueError:
        return None
