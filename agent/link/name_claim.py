"""One machine for one name: who serves an agent's queue is noted at the broker, for as long as it is heard.

The copy of an agent's disk is that agent a second time; what two machines measured would be one series.
"""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from agent.link.broker import Broker

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class TakenError(Exception):
    """Another machine serves under this name."""


@dataclass(frozen=True, slots=True)
class Holder:
    """`own` tells this machine and state folder from any other; it ends with the name of the host."""

    broker: Broker
    own: str
    hold_s: float

    @classmethod
    def of(cls, broker: Broker, state: Path, hold_s: float) -> Holder:
        """For the agent of this state folder, on this machine since its last start."""
        host = socket.gethostname()
        what = f"{_BOOT.read_text()} {host} {state.resolve()}"
        return cls(broker, f"{hashlib.sha256(what.encode()).hexdigest()[:32]} {host}", hold_s)

    def hold(self) -> None:
        """Have the name for `hold_s` seconds more. Raises `TakenError`, or what Redis' client raises."""
        key = f"{self.broker.key_prefix}agent.{self.broker.agent_id}.holder"
        milliseconds = int(1000 * self.hold_s)
        with self._client() as client:
            if client.set(key, self.own, nx=True, px=milliseconds):
                return
            found = client.get(key)
            holder = found.decode(errors="replace") if isinstance(found, bytes) else self.own
            if holder != self.own:
                raise TakenError(f"agent {self.broker.agent_id} is served from {holder.partition(' ')[2]!r}")
            client.set(key, self.own, px=milliseconds)

    def _client(self) -> Redis:
        url = self.broker.url.replace("redis+socket://", "unix://", 1)
        limits = {"socket_connect_timeout": 5, "socket_timeout": 30}
        plain = {"protocol": 2, "driver_info": None}  # an agent has no right to say more of itself
        return Redis.from_url(url, **plain, **limits, **(self.broker.tls() or {}))
