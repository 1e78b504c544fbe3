"""Reaches agents on other machines through the broker, and survives outages of the broker."""

import gc
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from kombu.message import Message

from agent.wire.logs import RareLog, brief
from agent.wire.messages import ForAgent, encode
from agent.wire.queue import PINGS_PER_WATCHDOG, is_ping, new_ping
from orchestrator.config.lab import LabTimes
from orchestrator.dispatch.base import BrokerBack, BrokerDownError, DispatchEvent, read
from orchestrator.dispatch.broker import FarmBroker, envelope_of

BATCH: Final = 200
"""The most messages that one transaction stores. Larger makes transactions longer and delivers more messages
again after a crash; smaller costs more commits. It must stay below the prefetch of `dispatch.broker`."""

_FIRST_PAUSE_S: Final = 1.0
"""Seconds until the first try after the broker was lost; each further pause is twice as long."""
_JITTER: Final = (0.75, 1.25)
"""Each pause is multiplied by a random number of this range: not all clients reconnect at once."""
_BATCH_WAIT_S: Final = 0.0005
"""Seconds to wait for one more message of a batch. Larger delays the commit of received messages;
smaller makes smaller batches while messages arrive."""
_BATCH_S: Final = 0.25
"""Seconds after which a batch ends although more has arrived: what was received is stored within a second
even where the broker is slow, or most messages are dropped. Larger delays the answers; smaller makes smaller
batches on a busy machine."""
_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Bytes of envelopes after which a batch ends: two of the largest. Each message of a batch is held several
times until the batch is stored, so larger needs more memory; smaller costs more commits of large results."""
_LEAST_WAIT_S: Final = 0.001
"""Shortest wait in seconds for the first message: a deadline in the past must not be a negative timeout."""
_NOT_YET: Final = "not connected yet"

log = logging.getLogger(__name__)


class Seal(Protocol):
    """Signs messages to agents, and checks the signatures on theirs."""

    def seal(self, agent_id: str, payload: bytes) -> str:
        """Return an envelope around one message, for one agent."""

    def open(self, envelope: str) -> tuple[str, bytes]:
        """Return the agent that signed, and its message. Raises `ValueError`."""

    def agents(self) -> frozenset[str]:
        """Return the agents whose messages can be opened."""

    def pending(self) -> Sequence[tuple[str, str]]:
        """Return envelopes of the seal's own that have to be sent, each with its agent."""


@dataclass(slots=True)
class LabDispatcher:
    """Sends to each agent's queue and drains their ingest queues in turn; connects on first use only.

    A lost connection is tried again after 1, 2, 4 ... seconds, at most `times.backoff_s`. A connection
    through which this process's own ping does not return within `times.watchdog_s` counts as lost.
    `authority`: PEM file of the broker's CA. `connected` is called whenever a connection was made, before any
    message is received; `came_back` with the seconds that a ping took.
    """

    sole_agent = False
    url: str = field(repr=False)
    key_prefix: str
    seal: Seal
    times: LabTimes
    authority: Path | None = None
    connected: Callable[[], None] | None = None
    came_back: Callable[[float], None] | None = None
    _broker: FarmBroker | None = None
    _fault: str = _NOT_YET
    _pause_s: float = _FIRST_PAUSE_S
    _retry_at_s: float = 0.0
    _received: list[DispatchEvent] = field(default_factory=list)
    _unacknowledged: list[Message] = field(default_factory=list)
    _dropped: RareLog = field(default_factory=lambda: RareLog(log, "messages that are dropped"))
    _batch_bytes: int = 0
    _ping: str = ""
    _pinged_s: float = 0.0

    @property
    def fault(self) -> str:
        """Why the broker cannot be reached; empty while it can."""
        return self._fault

    def send(self, agent_id: str, message: ForAgent) -> None:
        """Put a message into the agent's queue. Raises `BrokerDownError`."""
        if self._broker is None:
            raise BrokerDownError(f"the broker is down: {self._fault}")
        envelope = self.seal.seal(agent_id, encode(message).rstrip(b"\n"))
        try:
            self._broker.send(agent_id, envelope)
        except Exception as error:
            self._disconnect(error)
            raise BrokerDownError(f"the broker is down: {self._fault}") from error

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """Return up to `BATCH` messages; those returned before are acknowledged."""
        until = time.monotonic() + timeout_s
        self._connect(timeout_s)
        if self._broker is None:
            return self._take_received()
        try:
            # Only now has the caller stored them; after an earlier crash the broker delivers them again.
            self._acknowledge()
            self._watch(self._broker)
            self._dropped.tick()
            # In every turn, because agents are enrolled and revoked meanwhile.
            self._broker.listen_to(self.seal.agents())
            # A `BrokerBack` is returned without waiting for a message.
            waiting = bool(self._received) or self._broker.drain(max(_LEAST_WAIT_S, until - time.monotonic()))
            ends_at_s = time.monotonic() + _BATCH_S
            while waiting and not self._is_full() and time.monotonic() < ends_at_s:
                waiting = self._broker.drain(_BATCH_WAIT_S)
            # After the batch, whose envelopes say which keys of the farm their agents trust.
            for agent_id, envelope in self.seal.pending():
                self._broker.send(agent_id, envelope)
        except Exception as error:  # noqa: BLE001  # the client of the broker raises many kinds
            self._disconnect(error)
        return self._take_received()

    def _is_full(self) -> bool:
        return len(self._unacknowledged) >= BATCH or self._batch_bytes >= _BATCH_BYTES

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:  # noqa: ARG002  # agents continue
        """Acknowledge what is stored and disconnect; agents continue with their jobs."""
        if self._broker is not None:
            try:
                self._acknowledge()
                self._broker.close()
            except Exception as error:  # noqa: BLE001  # what is not acknowledged is delivered again
                log.warning("the broker went away at the end: %s", brief(error))
            self._broker = None
        return ()

    def _drop(self, error: Exception) -> None:
        """Log a message that cannot be used, at a bounded rate: it must not stop the others."""
        self._dropped.warning(f"a message from the broker is dropped: {brief(error)}")

    def _take_received(self) -> Sequence[DispatchEvent]:
        received, self._received = self._received, []
        return received

    def _connect(self, timeout_s: float) -> None:
        """Connect when the next try is due; sleep until then, at most `timeout_s`."""
        if self._broker is not None:
            return
        pause_s = self._retry_at_s - time.monotonic()
        if pause_s > 0:
            time.sleep(min(pause_s, timeout_s))
            return
        # Kombu's old channels keep their sockets in cycles of references until the collector finds them.
        gc.collect()
        try:
            self._broker = FarmBroker(self.url, self.key_prefix, self._on_message, self.authority)
            if self.connected is not None:
                self.connected()
        except Exception as error:  # noqa: BLE001  # the client of the broker raises many kinds
            self._disconnect(error)
            return
        log.warning("the broker answers")
        self._fault = ""
        self._pause_s = _FIRST_PAUSE_S
        self._ping = ""
        self._pinged_s = time.monotonic()
        self._received.append(BrokerBack())

    def _disconnect(self, error: Exception) -> None:
        """Drop a connection that failed, and log it once per outage."""
        if not self._fault or self._fault == _NOT_YET:
            log.warning("the broker is down: %s", brief(error))
        self._fault = brief(error)
        # The broker delivers these again, over the next connection.
        self._unacknowledged.clear()
        self._batch_bytes = 0
        self._retry_at_s = time.monotonic() + self._pause_s * random.uniform(*_JITTER)  # noqa: S311  # jitter
        self._pause_s = min(self.times.backoff_s, self._pause_s * 2)
        broker, self._broker = self._broker, None
        if broker is not None:
            try:
                broker.close()
            except Exception as closing:  # noqa: BLE001  # it is gone either way
                log.debug("closing the lost connection: %s", brief(closing))

    def _acknowledge(self) -> None:
        for message in self._unacknowledged:
            message.ack()
        self._unacknowledged.clear()
        self._batch_bytes = 0

    def _watch(self, broker: FarmBroker) -> None:
        """Ping this process through the broker. Raises `TimeoutError` where a ping is late."""
        now_s = time.monotonic()
        if self._ping and now_s - self._pinged_s > self.times.watchdog_s:
            raise TimeoutError(f"nothing came back through the broker for {self.times.watchdog_s:g} s")
        if not self._ping and now_s - self._pinged_s > self.times.watchdog_s / PINGS_PER_WATCHDOG:
            self._ping, self._pinged_s = new_ping(), now_s
            broker.ping(self._ping)

    def _note_ping(self, ping: str) -> None:
        # One of an earlier connection, which the broker has kept until now.
        if ping != self._ping:
            return
        self._ping = ""
        if self.came_back is not None:
            self.came_back(time.monotonic() - self._pinged_s)

    def _on_message(self, message: Message) -> None:
        try:
            envelope = envelope_of(message)
            if is_ping(envelope):
                self._note_ping(envelope)
            else:
                self._received.append(read(*self.seal.open(envelope)))
        except Exception as error:  # noqa: BLE001  # anybody may have written it
            self._drop(error)
            # At once: a flood of them must neither fill a batch nor be held in memory until its end.
            message.ack()
            return
        self._unacknowledged.append(message)
        self._batch_bytes += len(envelope)
