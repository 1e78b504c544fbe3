"""Between the daemon's socket and the broker: lines go up in envelopes, envelopes come down as lines."""

from __future__ import annotations

import logging
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kombu import Connection, Producer
from redis.exceptions import AuthenticationError

from agent.link.artifact_sync import Couriers, to_line
from agent.link.broker import INGEST_QUEUE, INGEST_TASK, MAX_ENVELOPE_BYTES, MESSAGE_TASK, Broker, publish
from agent.link.name_claim import Holder, TakenError
from agent.transport.process import ALIVE, REFUSED_EXIT, TAKEN_EXIT
from agent.wire.messages import JobResult, Wire

BROKER_EXIT: Final = 75
"""Exit code of a link that lost the broker: the daemon starts another."""

_PINGS_PER_WATCHDOG = 4
_READ_BYTES = 1 << 16
_UPLOAD_PAUSE_S = 5.0

log = logging.getLogger(__name__)


class Seal(Protocol):
    """Signs what goes up and checks what comes down."""

    def seal(self, payload: bytes) -> str:
        """An envelope around one message."""

    def open(self, envelope: str) -> bytes | None:
        """The message in an envelope of the farm's; None: it was for the seal itself. Raises `ValueError` for
        any other.
        """


@dataclass(slots=True)
class Bridge:
    """One thread each for what comes down (`take`), what goes up (`carry_up`), the results whose samples
    go before them (`carry_results`), and the watch over the broker (`ping`).
    """

    broker: Broker
    seal: Seal
    couriers: Couriers
    daemon: socket.socket
    watchdog_s: float
    replaced: Callable[[], bool]
    holder: Holder
    _pings: set[str] = field(default_factory=set)
    _results: queue.Queue[bytes] = field(default_factory=queue.Queue)
    _down: threading.Lock = field(default_factory=threading.Lock)
    _up: threading.Lock = field(default_factory=threading.Lock)
    _producers: dict[str, Producer] = field(default_factory=dict)
    _dropped: int = 0

    def log_in(self) -> None:
        """Connect and take the agent's name, or end this process with the broker's word."""
        try:
            self.holder.hold()
            self._producer(self.broker.queue)
        except Exception as error:  # noqa: BLE001  # whatever it is, a new process is the cure
            _give_up("cannot connect", error)

    def take(self, envelope: str) -> None:
        """The one task: an envelope of the farm's, or this link's own word that made the round trip."""
        if envelope in self._pings:
            self._pings.discard(envelope)
            self._say(ALIVE)
            return
        try:
            if len(envelope) > MAX_ENVELOPE_BYTES:
                raise ValueError(f"it has {len(envelope)} bytes; the limit is {MAX_ENVELOPE_BYTES}")
            message = self.seal.open(envelope)
            if message is not None:
                self.couriers.down(message, self._say, self.tell)
        except (ValueError, RecursionError) as error:
            self._dropped += 1
            log.warning("a message is dropped (%d so far): %s", self._dropped, error)

    def carry_up(self) -> None:
        """Send the daemon's lines until it hangs up, then end this process."""
        rest = b""
        while data := self.daemon.recv(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                if b'"type":"result"' in line[:40]:
                    self._results.put(line)
                else:
                    if b'"type":"refused"' in line[:40]:
                        self.couriers.up(line)
                    self._send(line)
        until = time.monotonic() + _UPLOAD_PAUSE_S
        while self._results.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.02)
        with self._up:
            os._exit(0)

    def carry_results(self) -> None:
        """Send results, each after its samples. What cannot be carried now comes again from the daemon."""
        while True:
            line = self._results.get()
            try:
                message = self.couriers.up(line)
            except (ValueError, OSError) as error:
                log.warning("a result waits: its samples cannot be stored on the server: %s", error)
            else:
                assert isinstance(message, JobResult)
                self._send(line)
            self._results.task_done()

    def ping(self) -> None:
        """Send oneself a word every while; the daemon is told of each that comes back. Ends this process
        where the credentials were `replaced`: the next one takes the new ones.
        """
        while not self.replaced():
            word = f"ping {secrets.token_hex(16)}"
            self._pings.add(word)
            self._publish(MESSAGE_TASK, self.broker.queue, word)
            time.sleep(self.watchdog_s / _PINGS_PER_WATCHDOG)
            self._keep_name()
        leave("this host was enrolled anew")

    def _keep_name(self) -> None:
        try:
            self.holder.hold()
        except Exception as error:  # noqa: BLE001  # whatever it is, a new process is the cure
            _give_up("cannot keep the agent's name", error)

    def tell(self, message: Wire) -> None:
        """Say something to the farm that the daemon knows nothing of."""
        self._send(to_line(message))

    def _send(self, line: bytes) -> None:
        self._publish(INGEST_TASK, INGEST_QUEUE, self.seal.seal(line))

    def _publish(self, task: str, to: str, envelope: str) -> None:
        """Publish, or end this process: what was not sent is said again over the next link."""
        try:
            with self._up:
                publish(self._producer(to), task, to, envelope)
        except Exception as error:  # noqa: BLE001  # whatever it is, a new process is the cure
            _give_up("cannot publish", error)

    def _producer(self, to: str) -> Producer:
        """The connection that may write to this queue."""
        if to not in self._producers:
            own = to == self.broker.queue
            way: Connection = self.broker.connection() if own else self.broker.ingest_connection()
            self._producers[to] = Producer(way.channel())
        return self._producers[to]

    def _say(self, line: bytes) -> None:
        with self._down:
            self.daemon.sendall(line + b"\n")


def leave(why: str, code: int = BROKER_EXIT) -> None:
    """End at once, without waiting for threads that may hang; the daemon starts another link."""
    log.error("the link ends: %s", why)
    os._exit(code)


def _give_up(what: str, error: Exception) -> None:
    codes = {AuthenticationError: REFUSED_EXIT, TakenError: TAKEN_EXIT}
    found = [code for kind, code in codes.items() if isinstance(error, kind)]
    leave(f"{what}: {brief(error)}", *found)


def brief(error: BaseException) -> str:
    """The error in one line."""
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no reason given'}"[:300]
