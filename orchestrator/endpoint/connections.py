"""The connections of the endpoint: who owns each, how long it may stand still, which is closed for another.

A connection belongs to its address until a request on it showed a valid token, and from then on to the owner
of the token. What no token has vouched for is cheap to open; it is bounded by address, in all, and in time.
"""

import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

MOST_CONNECTIONS: Final = 768
"""Connections at a time. Chosen: above what a large lab transfers at once; with a file for each, and the rest
of the farm, they need some 2,048 descriptors.
"""

MOST_STRANGERS: Final = 256
"""Connections at a time on which no valid token was shown. Chosen: far above the agents of a large lab that
connect in the same moment; a larger number only holds more memory for an attacker.
"""

MOST_OF_ONE_ADDRESS: Final = 128
"""Such connections of one address, so that one machine cannot close those of all others. Chosen: agents
behind one router, and connect together after a restart of the farm, fit.
"""

MOST_OF_ONE_OWNER: Final = 64
"""Connections of one agent, or of all that hold the read token or the submit token. Chosen: an agent needs
one or two for each device; one that was taken over cannot use up the connections of the others.
"""

REPORT_EVERY_S: Final = 60.0
"""Seconds between two lines of the log about closed connections: an attack must not fill the log."""

REPORT_FROM: Final = 20
"""Closed connections that are worth a line. Chosen: a few are ordinary, such as those of a port scan."""

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Connection:
    """One connection. `deadline_s`: time of the loop's clock after which it is closed; `waits`: whether the
    farm waits for its other end, so that closing it interrupts no work. `close` ends it, in any state.
    """

    address: str
    close: Callable[[], None]
    deadline_s: float
    owner: str | None = None
    waits: bool = True

    def __post_init__(self) -> None:
        self.address = network_of(self.address)


@dataclass(slots=True)
class Connections:
    """All connections, the oldest first; one thread uses it. `most`: how many there may be."""

    most: int = MOST_CONNECTIONS
    _all: dict[Connection, None] = field(default_factory=dict)
    _closed: Counter[str] = field(default_factory=Counter)
    _report_at_s: float = 0.0

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._all

    def add(self, new: Connection) -> None:
        """Take in a connection that was accepted, and close an older one where there are too many."""
        self._all[new] = None
        strangers = [one for one in self._all if one.owner is None]
        neighbours = [one for one in strangers if one.address == new.address]
        # One was added, so closing one is enough. The narrowest bound goes first: those who exceed it pay for
        # it. Where descriptors are few, half of them at least stay for owners.
        if len(neighbours) > MOST_OF_ONE_ADDRESS:
            self._drop_first(neighbours)
        elif len(strangers) > min(MOST_STRANGERS, self.most // 2):
            self._drop_first(_of_largest(strangers, lambda one: one.address))
        elif len(self._all) > self.most:
            self._drop_first(_of_largest(self._all, lambda one: one.owner or one.address))

    def vouch(self, connection: Connection, owner: str) -> None:
        """Note that a valid token of `owner` was shown on this connection."""
        # One that was closed for another may still have a request under way; it counts no more.
        if connection.owner == owner or connection not in self._all:
            return
        connection.owner = owner
        same = [one for one in self._all if one.owner == owner]
        if len(same) > MOST_OF_ONE_OWNER:
            self._drop_first(same)

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._all.pop(connection, None)

    def expire(self, now_s: float) -> None:
        """Close the connections whose deadline has passed; say in the log how many were closed of late."""
        for one in [one for one in self._all if one.deadline_s < now_s]:
            self._drop(one)
        if self._closed.total() >= REPORT_FROM and now_s >= self._report_at_s:
            self._report_at_s = now_s + REPORT_EVERY_S
            (most_of, _), *_ = self._closed.most_common(1)
            log.warning(
                "%d connections were closed since the last such line: they stood still or were too many; "
                "most were of %s",
                self._closed.total(),
                most_of,
            )
            self._closed.clear()

    def _drop_first(self, candidates: Iterable[Connection]) -> None:
        """Close the oldest that waits; where all are being answered, the newest, which has begun nothing."""
        ordered = list(candidates)
        self._drop(next((one for one in ordered if one.waits), ordered[-1]))

    def _drop(self, connection: Connection) -> None:
        self.forget(connection)
        self._closed[connection.owner or connection.address] += 1
        connection.close()


def _of_largest(candidates: Iterable[Connection], key: Callable[[Connection], str]) -> list[Connection]:
    """Return the candidates of the owner or address that has the most: it pays for the room that it takes."""
    found = list(candidates)
    (largest, _), *_ = Counter(map(key, found)).most_common(1)
    return [one for one in found if key(one) == largest]


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 of an IPv6 one, one machine's own."""
    try:
        # Without the zone of a link-local address, fe80::1%eth0.
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
