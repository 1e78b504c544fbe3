"""Relays between the daemon's socket and the broker: lines up in envelopes, envelopes down as lines."""

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kombu import Connection, Producer
from redis.exceptions import AuthenticationError

from agent.link.artifact_sync import ArtifactSync, to_line
from agent.link.broker import AgentBroker, NameClaim, NameTakenError
from agent.link.signing import AgentSeal
from agent.transport.process import ALIVE, NAME_TAKEN_EXIT, REFUSED_EXIT
from agent.wire.bounded import Wire
from agent.wire.logs import RareLog, brief
from agent.wire.messages import MAX_MESSAGE_BYTES, JobRefused, JobResult, type_of
from agent.wire.queue import INGEST_TASK, MESSAGE_TASK, PINGS_PER_WATCHDOG, new_ping, publish

BROKER_EXIT: Final = 75
"""Exit code of a link that lost the broker (EX_TEMPFAIL of sysexits.h): the daemon starts another."""

_READ_BYTES: Final = 1 << 16
"""Bytes read from the daemon's socket at once. Any size works: lines are joined across reads."""
_UPLOAD_LIMIT_S: Final = 5.0
"""Seconds that queued results have for their upload after the daemon hung up. The daemon kills a link that
takes longer than its own drain time; a result that is not sent then is sent by the next link."""
_UPLOAD_POLL_S: Final = 0.02
"""Seconds between two looks at these queued results; it only bounds the delay at the end."""

_RESULT: Final = JobResult.model_fields["type"].default
_REFUSED: Final = JobRefused.model_fields["type"].default

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Relay:
    """The threads of a link: `on_message` for what comes down, `relay_up` for what goes up, `relay_results`
    for results, whose samples go before them, and `watch` over the broker.
    """

    broker: AgentBroker
    seal: AgentSeal
    artifacts: ArtifactSync
    daemon: socket.socket
    watchdog_s: float
    replaced: Callable[[], bool]
    claim: NameClaim
    _pings: set[str] = field(default_factory=set)
    _results: queue.Queue[bytes] = field(default_factory=queue.Queue)
    _queued: set[bytes] = field(default_factory=set)
    _down: threading.Lock = field(default_factory=threading.Lock)
    _up: threading.Lock = field(default_factory=threading.Lock)
    _producers: dict[str, Producer] = field(default_factory=dict)
    _dropped: RareLog = field(default_factory=lambda: RareLog(log, "messages that are dropped"))

    def connect(self) -> None:
        """Claim the agent's name and open the connection, or end this process with the broker's reason."""
        try:
            self.claim.renew()
            self._producer(self.broker.queue)
        except Exception as error:  # noqa: BLE001  # a new process cures any failure
            _give_up("cannot connect", error)

    def on_message(self, envelope: str) -> None:
        """Handle the only task: an envelope from the farm, or a ping that this link sent to itself."""
        if envelope in self._pings:
            self._pings.discard(envelope)
            self._send_down(ALIVE)
            return
        try:
            message = self.seal.open(envelope)
            if message is not None:
                self.artifacts.deliver(message, self._send_down, self.send)
        except (ValueError, RecursionError) as error:
            self._dropped.warning(f"a message is dropped: {error}")

    def relay_up(self) -> None:
        """Send the daemon's lines until it hangs up, then end this process."""
        rest = b""
        while data := self.daemon.recv(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                self._route(line)
            if len(rest) > MAX_MESSAGE_BYTES:
                leave(f"the daemon sent more than {MAX_MESSAGE_BYTES} bytes without a line end")
        until = time.monotonic() + _UPLOAD_LIMIT_S
        while self._results.unfinished_tasks and time.monotonic() < until:
            time.sleep(_UPLOAD_POLL_S)
        # With the lock, so that the exit does not cut a message that another thread is publishing.
        with self._up:
            os._exit(0)

    def _route(self, line: bytes) -> None:
        """Send a line, by its type: a result has a thread of its own, since its samples can take minutes."""
        kind = type_of(line)
        if kind == _RESULT:
            # The daemon repeats it for as long as its samples take: where the endpoint is away, without end.
            if line not in self._queued:
                self._queued.add(line)
                self._results.put(line)
            return
        if kind == _REFUSED:
            # A refusal has nothing to upload; this ends the protection of its files.
            self.artifacts.prepare(line)
        self._send_line(line)

    def relay_results(self) -> None:
        """Send results, each after its samples. The daemon repeats a result that cannot be sent now."""
        while True:
            line = self._results.get()
            try:
                sent = self.artifacts.prepare(line)
            except (ValueError, OSError) as error:
                log.warning("a result waits: its samples cannot be stored on the server: %s", error)
            else:
                self._send_line(sent)
            self._queued.discard(line)
            # Also for one that was not sent, for which the end of the process does not wait.
            self._results.task_done()

    def watch(self) -> None:
        """Ping this link through the broker; the daemon is told of each ping that comes back.

        Ends this process where the credentials were `replaced`: the next one uses the new ones.
        """
        while not self.replaced():
            ping = new_ping()
            # Before it is published: it can come back before `_publish` returns.
            self._pings.add(ping)
            self._publish(MESSAGE_TASK, self.broker.queue, ping)
            time.sleep(self.watchdog_s / PINGS_PER_WATCHDOG)
            self._renew_claim()
        leave("this host was enrolled again")

    def _renew_claim(self) -> None:
        try:
            self.claim.renew()
        except Exception as error:  # noqa: BLE001  # a new process cures any failure
            _give_up("cannot keep the agent's name", error)

    def send(self, message: Wire) -> None:
        """Send the farm a message that the daemon did not write."""
        self._send_line(to_line(message))

    def _send_line(self, line: bytes) -> None:
        self._publish(INGEST_TASK, self.broker.ingest_queue, self.seal.seal(line))

    def _publish(self, task: str, to: str, envelope: str) -> None:
        """Publish, or end this process: the daemon repeats over the next link what was not sent."""
        try:
            # Kombu's channels are for one thread at a time, and several threads publish.
            with self._up:
                publish(self._producer(to), task, to, envelope)
        except Exception as error:  # noqa: BLE001  # a new process cures any failure
            _give_up("cannot publish", error)

    def _producer(self, to: str) -> Producer:
        """Return a queue's producer: the agent's own and the ingest queue need different users."""
        if to not in self._producers:
            own = to == self.broker.queue
            connection: Connection = self.broker.connection() if own else self.broker.ingest_connection()
            self._producers[to] = Producer(connection.channel())
        return self._producers[to]

    def _send_down(self, line: bytes) -> None:
        # Several threads write to the daemon; a line must not be cut by another one.
        with self._down:
            self.daemon.sendall(line + b"\n")


def leave(why: str, code: int = BROKER_EXIT) -> None:
    """End at once, without waiting for threads that may hang; the daemon starts another link."""
    log.error("the link ends: %s", why)
    os._exit(code)


def _give_up(what: str, error: Exception) -> None:
    codes = {AuthenticationError: REFUSED_EXIT, NameTakenError: NAME_TAKEN_EXIT}
    found = [code for kind, code in codes.items() if isinstance(error, kind)]
    leave(f"{what}: {brief(error)}", *found)
