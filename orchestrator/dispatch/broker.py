"""The scheduler's end of the broker: Redis through Kombu, in the form of Celery's messages.

Queues: `agent.<agent id>.jobs` down, `ingest` up; each is a Redis list, without exchange or binding.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Callable
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final

from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.message import Message
from redis import Redis

MESSAGE_TASK: Final = "farm.message"
INGEST_TASK: Final = "farm.ingest"
INGEST_QUEUE: Final = "ingest"
MAX_ENVELOPE_BYTES: Final = 8 * 1024 * 1024
VISIBILITY_TIMEOUT_S: Final = 300

_PREFETCH = 500


class MalformedError(Exception):
    """Something lay in the queue that is no message at all; it is gone, and the connection is well."""


class Broker:
    """One connection for both ways. Methods raise what Redis' client raises: the caller starts anew."""

    def __init__(
        self, url: str, key_prefix: str, take: Callable[[Message], None], authority: Path | None = None
    ) -> None:
        """Connect. `take` gets every message of the ingest queue; it acknowledges. `authority`: CA in PEM."""
        self._connection = Connection(
            url, ssl=_tls(url, authority) or False, transport_options=_options(key_prefix)
        )
        self._connection.ensure_connection(max_retries=0, reraise_as_library_errors=False)
        self._producer = Producer(self._connection.channel())
        channel = self._connection.channel()
        self._consumer = Consumer(
            channel,
            queues=[Queue(INGEST_QUEUE, Exchange("", type="direct"), routing_key=INGEST_QUEUE)],
            on_message=take,
            accept=["json"],
            prefetch_count=_PREFETCH,
        )
        self._consumer.consume()

    def send(self, agent_id: str, envelope: str) -> None:
        """Put an envelope into an agent's queue."""
        self._publish(MESSAGE_TASK, f"agent.{agent_id}.jobs", envelope)

    def ping(self, word: str) -> None:
        """Send oneself a word through the ingest queue."""
        self._publish(INGEST_TASK, INGEST_QUEUE, word)

    def drain(self, timeout_s: float) -> bool:
        """Take in at least one message; False where none came in time. Raises `MalformedError`."""
        try:
            self._connection.drain_events(timeout=timeout_s)
        except TimeoutError:
            return False
        except (AttributeError, KeyError, TypeError, JSONDecodeError, UnicodeDecodeError) as error:
            raise MalformedError(f"no message of Celery's form: {error!r}") from error
        return True

    def close(self) -> None:
        """Drop the connection; what was not acknowledged is given out again later."""
        self._connection.release()

    def _publish(self, task: str, queue: str, envelope: str) -> None:
        name = str(uuid.uuid4())
        self._producer.publish(
            [[envelope], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
            exchange="",
            routing_key=queue,
            serializer="json",
            headers={"lang": "py", "task": task, "id": name, "root_id": name, "parent_id": None},
            correlation_id=name,
            retry=False,
        )


def redis_client(url: str, authority: Path | None = None) -> Redis:
    """A plain client for a look at the broker; it gives up within seconds. `authority`: CA in PEM."""
    plain = url.replace("redis+socket://", "unix://", 1)
    return Redis.from_url(plain, socket_connect_timeout=3, socket_timeout=3, **_tls(url, authority))


def _tls(url: str, authority: Path | None) -> dict[str, Any]:
    """Certificates are checked whenever the URL says `rediss://`."""
    if not url.startswith("rediss://"):
        return {}
    own = {} if authority is None else {"ssl_ca_certs": str(authority)}
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **own}


def envelope_of(message: Message) -> str:
    """The argument of a `farm.ingest` message. Raises `ValueError` for any other message."""
    if message.headers.get("task") != INGEST_TASK:
        raise ValueError(f"a message for {message.headers.get('task')!r} in the queue of {INGEST_TASK}")
    body = message.body or ""
    if len(body) > 2 * MAX_ENVELOPE_BYTES:
        raise ValueError(f"a message of {len(body)} bytes")
    try:
        ((envelope,), _keywords, _embedded) = message.payload
    except (TypeError, ValueError) as error:
        raise ValueError("a message that is no call of one argument") from error
    if not isinstance(envelope, str) or len(envelope) > MAX_ENVELOPE_BYTES:
        raise ValueError("an envelope that is no text, or too long")
    return envelope


def _options(key_prefix: str) -> dict[str, Any]:
    """Connections that notice a dead peer within half a minute."""
    return {
        "global_keyprefix": key_prefix,
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "priority_steps": [0],
        "unacked_key": "ingest.unacked",
        "unacked_index_key": "ingest.unacked_index",
        "unacked_mutex_key": "ingest.unacked_mutex",
        "socket_connect_timeout": 5,
        "socket_timeout": 30,
        "socket_keepalive": True,
        "socket_keepalive_options": {
            socket.TCP_KEEPIDLE: 10,
            socket.TCP_KEEPINTVL: 5,
            socket.TCP_KEEPCNT: 3,
        },
        "health_check_interval": 10,
        "retry_on_timeout": False,
    }
