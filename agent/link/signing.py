"""Envelopes of one agent: signed by it on the way up, by a key of the farm that it trusts on the way down.

It trusts the key that it was enrolled with, then those announced since.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.credentials import write_secret
from agent.wire.envelope import (
    KEYS_KIND,
    Freshness,
    IssueClock,
    PublicKey,
    SigningKey,
    key_id_of,
    open_envelope,
    read_keys,
    seal,
)

KEYS_FILE: Final = "farm-keys.json"

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TrustedFarmKeys:
    """`enrolled`: the key of the credentials; a new enrolment voids what was announced before.

    `path`: file with the announced keys, which survive a restart.
    """

    enrolled: PublicKey
    path: Path
    _keys: dict[str, PublicKey] = field(init=False)

    def __post_init__(self) -> None:
        self._keep(self._announced() or [self.enrolled])

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the trusted keys."""
        return tuple(self._keys)

    def named(self, key_id: str) -> PublicKey:
        """Return a trusted key. Raises `ValueError` for the id of any other."""
        if key_id not in self._keys:
            raise ValueError(
                f"signed with key {key_id}, not with {' or '.join(self._keys)}, which this agent trusts; "
                "where the farm's key was replaced while this agent was away: farm lab agents rotate NAME"
            )
        return self._keys[key_id]

    def replace(self, keys: Sequence[PublicKey]) -> None:
        """Trust these from now on and no others. Raises `OSError`."""
        fields = {"enrolled": self.enrolled.text, "keys": [key.text for key in keys]}
        write_secret(self.path, json.dumps(fields))
        self._keep(keys)
        log.warning("the farm's keys are now, the newest first: %s", ", ".join(self._keys))

    def _keep(self, keys: Sequence[PublicKey]) -> None:
        self._keys = {key.key_id: key for key in keys}

    def _announced(self) -> list[PublicKey]:
        """Keys announced since the enrolment, which may be none. Raises `OSError` or `ValueError`."""
        if not self.path.exists():
            return []
        try:
            fields = json.loads(self.path.read_text())
            if fields["enrolled"] != self.enrolled.text:
                return []
            return [PublicKey.read(text) for text in fields["keys"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.path} is malformed; enrol this host again") from error


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
        # By the newest `issued`, which is the least that the farm's clock shows.
        kept = [entry for entry in found if entry[2] >= newest]
        for nonce, issued, expires in kept:
            self.fresh.remember(nonce, issued, expires)
        # Anew and without what has expired: while the link lives, `open` only appends.
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
