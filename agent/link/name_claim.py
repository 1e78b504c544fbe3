"""Let one machine alone serve under a name: the broker holds its claim, which the machine's link renews.

A copy of an agent's disk is the same agent a second time, and the measurements of two machines would look
like one series.
"""

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis import Redis

from agent.link.broker import AgentBroker
from agent.wire.queue import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S, agent_key, client_url

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_OWNER_DIGITS: Final = 32
"""Hex digits that tell an owner from all others: 128 bits of a sha256."""


class NameTakenError(Exception):
    """Another machine serves under this name."""


@dataclass(frozen=True, slots=True)
class NameClaim:
    """The claim of one agent's name. `owner` identifies this machine and state folder; its second
    word is the name of the host. A claim that is not renewed expires after `lifetime_s` seconds.
    """

    broker: AgentBroker
    owner: str
    lifetime_s: float

    @classmethod
    def of(cls, broker: AgentBroker, state: Path, lifetime_s: float) -> "NameClaim":
        """Return the claim of this state folder's agent on this machine, valid for its current boot."""
        host = socket.gethostname()
        identity = f"{_BOOT.read_text()} {host} {state.resolve()}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:_OWNER_DIGITS]
        return cls(broker, f"{digest} {host}", lifetime_s)

    def renew(self) -> None:
        """Claim the name for `lifetime_s` more. Raises `NameTakenError`, or what Redis' client raises."""
        key = self.broker.key_prefix + agent_key(self.broker.agent_id, "holder")
        milliseconds = int(1000 * self.lifetime_s)
        with self._client() as client:
            # NX lets one of two machines win; the other one reads its name.
            if client.set(key, self.owner, nx=True, px=milliseconds):
                return
            found = client.get(key)
            owner = found.decode(errors="replace") if isinstance(found, bytes) else self.owner
            if owner != self.owner:
                raise NameTakenError(
                    f"agent {self.broker.agent_id} is served from {owner.partition(' ')[2]!r}"
                )
            client.set(key, self.owner, px=milliseconds)

    def _client(self) -> Redis:
        limits = {"socket_connect_timeout": CONNECT_TIMEOUT_S, "socket_timeout": SOCKET_TIMEOUT_S}
        # RESP2 without driver info: an agent's user has no right to HELLO, nor to CLIENT SETINFO everywhere.
        plain: dict[str, Any] = {"protocol": 2, "driver_info": None}
        return Redis.from_url(client_url(self.broker.url), **plain, **limits, **self.broker.tls())
