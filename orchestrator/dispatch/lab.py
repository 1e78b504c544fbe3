"""Agents elsewhere, through the broker: envelopes out, envelopes in, and patience with an absent broker."""

from __future__ import annotations

import gc
import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from kombu.message import Message

from agent.wire.messages import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    AgentHello,
    ForAgent,
    decode_for_orchestrator,
    encode,
)
from agent.wire.queue import PINGS_PER_WATCHDOG, is_ping, new_ping
from orchestrator.config.lab import LabTimes
from orchestrator.dispatch.base import (
    BrokerBack,
    BrokerDownError,
    DispatchEvent,
    IncompatibleHello,
    MessageReceived,
)
from orchestrator.dispatch.broker import FarmBroker, MalformedError, envelope_of

BATCH: Final = 200
"""Messages that one transaction takes in at most."""

_FIRST_PAUSE_S = 1.0
_NOT_YET = "not connected yet"

log = logging.getLogger(__name__)


class Seal(Protocol):
    """Signs what goes to an agent and knows who signed what comes."""

    def seal(self, agent_id: str, payload: bytes) -> str:
        """An envelope around one message, for one agent."""

    def open(self, envelope: str) -> tuple[str, bytes]:
        """The agent that signed, and its message. Raises `ValueError`."""

    def owed(self) -> Sequence[tuple[str, str]]:
        """Envelopes of the seal's own that are to be sent, by agent."""


class LabDispatcher:
    """Sends to each agent's queue and drains the ingest queue.

    A broker that is away is looked for again after 1, 2, 4 ... seconds, at most `times.backoff_s`; one
    through which this process's own word does not come back within `times.watchdog_s` is left and looked
    for anew.
    """

    sole_agent = False

    def __init__(
        self,
        url: str,
        key_prefix: str,
        seal: Seal,
        times: LabTimes,
        authority: Path | None = None,
        connected: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is connected before the first use. `authority`: PEM file of the broker's CA. `connected`
        is called whenever the broker answers (again), before anything is taken from it.
        """
        self._authority = authority
        self._connected = connected
        self._url = url
        self._key_prefix = key_prefix
        self._seal = seal
        self._times = times
        self._broker: FarmBroker | None = None
        self._fault = _NOT_YET
        self._pause_s = _FIRST_PAUSE_S
        self._retry_at_s = 0.0
        self._came: list[DispatchEvent] = []
        self._unacknowledged: list[Message] = []
        self._dropped = 0
        self._ping = ""
        self._pinged_s = 0.0

    @property
    def fault(self) -> str:
        """Why the broker cannot be reached; empty while it can."""
        return self._fault

    def send(self, agent_id: str, message: ForAgent) -> None:
        """Put a message into the agent's queue. Raises `BrokerDownError`."""
        if self._broker is None:
            raise BrokerDownError(f"the broker is down: {self._fault}")
        envelope = self._seal.seal(agent_id, encode(message).rstrip(b"\n"))
        try:
            self._broker.send(agent_id, envelope)
        except Exception as error:
            self._lose(error)
            raise BrokerDownError(f"the broker is down: {self._fault}") from error

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """Up to `BATCH` messages; the ones returned before are acknowledged."""
        until = time.monotonic() + timeout_s
        self._connect(timeout_s)
        if self._broker is None:
            return self._taken()
        try:
            self._acknowledge()
            self._watch(self._broker)
            waiting = self._drain(max(0.001, until - time.monotonic())) if not self._came else True
            while waiting and len(self._unacknowledged) < BATCH:
                waiting = self._drain(0.0005)
            for agent_id, envelope in self._seal.owed():
                self._broker.send(agent_id, envelope)
        except Exception as error:  # noqa: BLE001  # the client of the broker raises many kinds
            self._lose(error)
        return self._taken()

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:  # noqa: ARG002  # agents go on
        """Acknowledge what is stored and disconnect."""
        if self._broker is not None:
            try:
                self._acknowledge()
                self._broker.close()
            except Exception as error:  # noqa: BLE001  # what is not acknowledged comes again
                log.warning("the broker went away at the end: %s", _brief(error))
            self._broker = None
        return ()

    def _drain(self, timeout_s: float) -> bool:
        """Take in a message; False where none came in time, or none that is one."""
        assert self._broker is not None
        try:
            return self._broker.drain(timeout_s)
        except MalformedError as error:
            self._drop(error)
            return False

    def _drop(self, error: Exception) -> None:
        """Whatever was wrong with it: one message must not stop the others."""
        self._dropped += 1
        log.warning("a message from the broker is dropped (%d so far): %s", self._dropped, _brief(error))

    def _taken(self) -> Sequence[DispatchEvent]:
        came, self._came = self._came, []
        return came

    def _connect(self, timeout_s: float) -> None:
        """Try for the broker when it is time; wait where it is not."""
        if self._broker is not None:
            return
        pause_s = self._retry_at_s - time.monotonic()
        if pause_s > 0:
            time.sleep(min(pause_s, timeout_s))
            return
        gc.collect()  # Kombu's old channels keep their sockets in circles of references until they are found
        try:
            self._broker = FarmBroker(self._url, self._key_prefix, self._on_message, self._authority)
            if self._connected is not None:
                self._connected()
        except Exception as error:  # noqa: BLE001  # the client of the broker raises many kinds
            self._lose(error)
            return
        log.warning("the broker answers")
        self._fault = ""
        self._pause_s = _FIRST_PAUSE_S
        self._ping = ""
        self._pinged_s = time.monotonic()
        self._came.append(BrokerBack())

    def _lose(self, error: Exception) -> None:
        """Leave a connection that failed, and say so once per outage."""
        if not self._fault or self._fault == _NOT_YET:
            log.warning("the broker is down: %s", _brief(error))
        self._fault = _brief(error)
        self._unacknowledged.clear()
        self._retry_at_s = time.monotonic() + self._pause_s * random.uniform(0.75, 1.25)  # noqa: S311  # jitter
        self._pause_s = min(self._times.backoff_s, self._pause_s * 2)
        broker, self._broker = self._broker, None
        if broker is not None:
            try:
                broker.close()
            except Exception as closing:  # noqa: BLE001  # it is gone either way
                log.debug("closing the lost connection: %s", _brief(closing))

    def _acknowledge(self) -> None:
        for message in self._unacknowledged:
            message.ack()
        self._unacknowledged.clear()

    def _watch(self, broker: FarmBroker) -> None:
        """A word to oneself every while; one that does not come back in time is the broker's fault."""
        now_s = time.monotonic()
        if self._ping and now_s - self._pinged_s > self._times.watchdog_s:
            raise TimeoutError(f"nothing came back through the broker for {self._times.watchdog_s:g} s")
        if not self._ping and now_s - self._pinged_s > self._times.watchdog_s / PINGS_PER_WATCHDOG:
            self._ping, self._pinged_s = new_ping(), now_s
            broker.ping(self._ping)

    def _on_message(self, message: Message) -> None:
        self._unacknowledged.append(message)
        try:
            envelope = envelope_of(message)
            if is_ping(envelope):
                self._ping = "" if envelope == self._ping else self._ping
                return
            self._came.append(_read(*self._seal.open(envelope)))
        except Exception as error:  # noqa: BLE001  # anybody may have written it
            self._drop(error)


def _read(agent_id: str, payload: bytes) -> DispatchEvent:
    """A message of a known agent. Raises `ValueError`."""
    try:
        message = decode_for_orchestrator(payload)
    except ValueError:
        return _incompatible_hello(agent_id, payload)
    if isinstance(message, AgentHello):
        if message.agent_id != agent_id:
            raise ValueError(f"agent {agent_id} calls itself {message.agent_id}")
        if message.protocol != PROTOCOL_VERSION:
            return IncompatibleHello(agent_id, message.protocol)
    return MessageReceived(agent_id, message)


def _incompatible_hello(agent_id: str, payload: bytes) -> IncompatibleHello:
    """An agent of another protocol has a hello of another form; only its number is looked at."""
    said: Any = json.loads(payload) if len(payload) <= MAX_MESSAGE_BYTES else None
    if isinstance(said, dict) and said.get("type") == "hello":
        protocol = said.get("protocol")
        if isinstance(protocol, int) and protocol != PROTOCOL_VERSION:
            return IncompatibleHello(agent_id, protocol)
    raise ValueError(f"agent {agent_id} said something unreadable: {payload[:100]!r}")


def _brief(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no reason given'}"[:300]
