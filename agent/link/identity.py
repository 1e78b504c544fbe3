"""Who this agent is in a lab: its name, its way to the broker, its seal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.link.artifact_client import artifacts_of
from agent.link.artifact_sync import Artifacts
from agent.link.broker import Broker
from agent.link.farm_keys import FILE as KEYS
from agent.link.farm_keys import FarmKeys
from agent.link.relay import Seal
from agent.wire.credentials import FILE, Credentials, write_secret
from agent.wire.envelope import (
    KEYS_KIND,
    Freshness,
    PublicKey,
    SigningKey,
    Stamps,
    key_id_of,
    open_envelope,
    read_keys,
    seal,
)

MEMORY: Final = "seen"
AUTHORITY: Final = "broker-ca.pem"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a link needs to speak for its agent. `replaced`: it was enrolled anew since this was read."""

    broker: Broker
    seal: Seal
    artifacts: Artifacts
    replaced: Callable[[], bool]


@dataclass(slots=True)
class SignedSeal:
    """Signs as the agent; opens what the farm signed for it, once. `memory`: what came, across restarts."""

    agent_id: str
    key: SigningKey = field(repr=False)
    farm: FarmKeys
    memory: Path
    fresh: Freshness = field(default_factory=Freshness)
    stamps: Stamps = field(default_factory=Stamps)

    def __post_init__(self) -> None:
        self._recall()

    def seal(self, payload: bytes) -> str:
        """An envelope around one message."""
        return seal(self.key, self.agent_id, payload, self.stamps.now(), self.farm.ids)

    def open(self, envelope: str) -> bytes | None:
        """The message in an envelope; None: it was for this seal. Raises `ValueError`."""
        opened = open_envelope(envelope, self.farm.named(key_id_of(envelope)))
        if opened.agent_id != self.agent_id:
            raise ValueError(f"it is for agent {opened.agent_id[:64]!r}")
        self.fresh.take(opened)
        self.stamps.reach(opened.issued)
        with self.memory.open("a") as out:
            out.write(_line(self._farm_id, opened.nonce, opened.issued, opened.expires))
        if opened.kind == KEYS_KIND:
            self.farm.replace(read_keys(opened.payload))
            return None
        return opened.payload

    @property
    def _farm_id(self) -> str:
        """One farm, whatever keys it has had since the enrolment."""
        return self.farm.enrolled.key_id

    def _recall(self) -> None:
        """Read what came before, and keep of it what has not expired."""
        lines = self.memory.read_text().splitlines() if self.memory.exists() else []
        found = [entry for line in lines if (entry := _entry(line, self._farm_id)) is not None]
        newest = max((issued for _, issued, _ in found), default=0.0)
        self.fresh = Freshness(newest)
        self.stamps.reach(newest)
        kept = [entry for entry in found if entry[2] >= newest]
        for nonce, issued, expires in kept:
            self.fresh.remember(nonce, issued, expires)
        text = "".join(_line(self._farm_id, *entry) for entry in kept)
        write_secret(self.memory, text)


def load(state: Path) -> Identity:
    """Read it from the agent's state folder. Raises `OSError` or `ValueError`."""
    path = state / FILE
    read_at = path.stat().st_mtime_ns
    credentials = Credentials.read(state)
    folder = state / "link"
    folder.mkdir(exist_ok=True)
    authority = None
    if credentials.broker_ca is not None:
        authority = folder / AUTHORITY
        write_secret(authority, credentials.broker_ca)
    sealing = SignedSeal(
        credentials.agent_id,
        SigningKey.read(credentials.signing_key),
        FarmKeys(PublicKey.read(credentials.farm_key), folder / KEYS),
        folder / MEMORY,
    )
    return Identity(
        Broker(credentials.agent_id, credentials.broker_url, credentials.key_prefix, authority),
        sealing,
        artifacts_of(credentials.values(), state),
        lambda: _changed(path, read_at),
    )


def _changed(path: Path, read_at: int) -> bool:
    try:
        return path.stat().st_mtime_ns != read_at
    except OSError:
        return False


def _line(farm: str, nonce: str, issued: float, expires: float) -> str:
    return f"{farm} {nonce} {issued!r} {expires!r}\n"


def _entry(line: str, farm: str) -> tuple[str, float, float] | None:
    """A line of this farm's; None for another one's, and for one that a crash cut."""
    words = line.split(" ")
    try:
        key_id, nonce, issued, expires = words
        return (nonce, float(issued), float(expires)) if key_id == farm else None
    except ValueError:
        return None
