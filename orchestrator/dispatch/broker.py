"""Connects the scheduler to Redis through Kombu, with the names and forms of `agent.wire.queue`."""

from collections.abc import Callable
from json import JSONDecoder
from pathlib import Path
from typing import Any, Final

from kombu import Consumer, Producer
from kombu.message import Message
from kombu.transport import virtual
from redis import Redis

from agent.wire import queue as queues
from agent.wire.bounded_transport import BoundedConnection, direct_queue

_PREFETCH: Final = 500
"""Messages that Kombu delivers before the first acknowledgement; it must exceed `lab.BATCH` (200), or a
transaction could never take a full batch. Larger only leaves more to deliver again after a crash."""
_CALL: Final = '[["'
"""How the body of a call with a text as its only argument begins."""
_LOOK_TIMEOUT_S: Final = 3
"""Seconds that a plain check of the broker may take to connect, and for each answer. `farm doctor` and the
access lists wait for it, so it is shorter than the limits of the message connections."""


class _UncompressedMessage(virtual.Message):
    """A message as Kombu reads it, unless its body is compressed.

    Kombu would decompress it here: a kilobyte can become a megabyte, and a body that cannot be decompressed
    would be delivered again for ever.
    """

    def __init__(self, payload: Any, channel: Any = None, **kwargs: Any) -> None:
        if "compression" in (payload.get("headers") or ()):
            raise ValueError("its body is compressed; nobody in a lab compresses messages")
        super().__init__(payload, channel=channel, **kwargs)


class FarmBroker:
    """One connection for both directions. Methods raise Redis' client's errors; the caller reconnects."""

    def __init__(
        self, url: str, key_prefix: str, on_message: Callable[[Message], None], authority: Path | None = None
    ) -> None:
        """Connect. `on_message` gets every message to the farm and acknowledges it later.

        `authority`: CA certificates as PEM, None: the system's. Raises the errors of Redis' client.
        """
        self._connection = BoundedConnection(
            url,
            ssl=queues.tls_options(url, authority) or False,
            transport_options=queues.farm_options(key_prefix),
        )
        # One try: `LabDispatcher` decides when the next one is due.
        self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
        self._producer = Producer(self._connection.channel())
        channel = self._connection.channel()
        channel.Message = _UncompressedMessage  # type: ignore[attr-defined]  # of every virtual transport
        self._consumer = Consumer(
            channel,
            queues=[direct_queue(queues.PING_QUEUE)],
            on_message=on_message,
            accept=["json"],
            prefetch_count=_PREFETCH,
        )
        self._consumer.consume()
        self._agents: frozenset[str] = frozenset()

    def listen_to(self, agents: frozenset[str]) -> None:
        """Receive from the lists of these agents, in turn with the lists that belong to none."""
        for agent_id in self._agents - agents:
            self._consumer.cancel_by_queue(queues.ingest_queue(agent_id))
        for agent_id in sorted(agents - self._agents):
            self._consumer.add_queue(direct_queue(queues.ingest_queue(agent_id)))
        if agents - self._agents:
            # This starts the new lists only: Kombu keeps track of those that it consumes already.
            self._consumer.consume()
        self._agents = agents

    def send(self, agent_id: str, envelope: str) -> None:
        """Put an envelope into an agent's queue."""
        queues.publish(self._producer, queues.MESSAGE_TASK, queues.agent_queue(agent_id), envelope)

    def ping(self, word: str) -> None:
        """Send a word to this process itself."""
        queues.publish(self._producer, queues.INGEST_TASK, queues.PING_QUEUE, word)

    def drain(self, timeout_s: float) -> bool:
        """Receive a message, which may be one that is dropped; False where none arrived in time."""
        try:
            self._connection.drain_events(timeout=timeout_s)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Drop the connection; what was not acknowledged is delivered again later."""
        self._connection.release()


def redis_client(url: str, authority: Path | None = None) -> Redis:
    """Return a plain client for checking the broker; it gives up within seconds. `authority`: CA as PEM."""
    return Redis.from_url(
        queues.client_url(url),
        socket_connect_timeout=_LOOK_TIMEOUT_S,
        socket_timeout=_LOOK_TIMEOUT_S,
        **queues.tls_options(url, authority),
    )


def envelope_of(message: Message) -> str:
    """Return the argument of a `farm.ingest` message. Raises `ValueError` for any other message."""
    if message.headers.get("task") != queues.INGEST_TASK:
        raise ValueError(
            f"a message for {message.headers.get('task')!r} in the queue of {queues.INGEST_TASK}"
        )
    body: str | bytes = message.body or ""
    # Before the JSON is parsed: parsing costs many times the size in memory, and anybody may have written it.
    if len(body) > queues.MAX_CALL_BYTES:
        raise ValueError(f"a message of {len(body)} bytes; the limit is {queues.MAX_CALL_BYTES}")
    text = body.decode() if isinstance(body, bytes) else body
    # Only the first argument is parsed, which is a text: lists in lists would take thirty times their size.
    if message.content_type != "application/json" or not text.startswith(_CALL):
        raise ValueError("a message that is not a call with a text as its first argument")
    envelope, end = JSONDecoder().raw_decode(text, len(_CALL) - 1)
    if not text.startswith("]", end) or len(envelope) > queues.MAX_ENVELOPE_BYTES:
        raise ValueError("a message with more than one argument, or an envelope that is too long")
    return str(envelope)
