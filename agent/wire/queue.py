"""The broker as both floors see it: names of tasks, queues and keys, message form, connection options.

Messages have Celery's form over Redis lists. `agent.<agent id>.jobs` carries envelopes from the farm to one
agent, `agent.<agent id>.ingest` those of this agent to the farm, which takes from all lists in turn: an agent
that fills its own delays nobody else. Neither Celery, Kombu nor Redis is imported here, so that the names can
be read without them.
"""

import secrets
import socket
import ssl
import sys
import uuid
from pathlib import Path
from typing import Any, Final, Protocol

MESSAGE_TASK: Final = "farm.message"
"""Task name of an envelope from the farm to an agent; the only task that an agent registers."""
INGEST_TASK: Final = "farm.ingest"
"""Task name of an envelope from an agent to the farm."""
PING_QUEUE: Final = "ingest.ping"
"""List of the farm's words to itself: in a list that others fill they would be late, and look lost."""
INGEST_UNACKED_KEY: Final = "ingest.unacked"
"""Key of the messages that the farm was given and has not acknowledged yet."""

AGENT_KEYS: Final = ("jobs", "holder")
"""An agent's own keys, each after `agent.<agent id>.`: its queue and the claim of its name. The broker's
access lists allow these alone."""

MAX_ENVELOPE_BYTES: Final = 8 * 1024 * 1024
"""Largest envelope in bytes that either end opens: twice `MAX_MESSAGE_BYTES`, which leaves room for the head
and for characters that canonical JSON escapes. Smaller would drop large results; larger lets a stranger who
can write to a queue make the other end hold more memory."""
MAX_CALL_BYTES: Final = 2 * MAX_ENVELOPE_BYTES
"""Largest queued message body in characters that is parsed. The envelope is a JSON string inside the body,
where every quotation mark is escaped, so a body can be up to twice as long as its envelope."""
MAX_RAW_BYTES: Final = MAX_CALL_BYTES // 3 * 4 + 64 * 1024
"""Largest message in bytes that is read from the broker at all: a body of `MAX_CALL_BYTES` in base64, with
64 KiB of room for Celery's headers. Smaller would drop large results; larger lets a stranger who can write to
a queue make the other end hold more memory before it has looked at the message."""
MAX_MARKS: Final = 500
"""Most brackets, braces and commas in such a message. Celery's headers have about 50, and base64 has none: a
message of nothing but brackets would take thirty times its size when it is parsed."""
MAX_VALUES: Final = 500_000
"""Most brackets, braces and commas in the body of an envelope. The largest real one, a report of 8192
operators that stayed on the CPU, has about 100,000; parsed, so many take 40 MB at most. Larger lets an agent
make the farm hold more memory for one message."""

PINGS_PER_WATCHDOG: Final = 4
"""Pings that each end sends to itself per watchdog time. One lost ping must not look like a lost broker;
more would only add traffic."""
_PING_PREFIX: Final = "ping "
"""Prefix of a ping; no envelope has it, since an envelope begins with its version number."""
_PING_BYTES: Final = 16
"""Random bytes in a ping: 128 bits, so that a process never mistakes another's ping for its own."""

VISIBILITY_TIMEOUT_S: Final = 300
"""Seconds after which Kombu delivers an unacknowledged message to the farm again. The farm acknowledges
within seconds; smaller would deliver a batch twice while its transaction still runs, larger would delay what
a killed process left unacknowledged."""
CONNECT_TIMEOUT_S: Final = 5
"""Seconds until a connection attempt to the broker fails. Chosen for a laboratory's network; larger only
delays the next attempt."""
SOCKET_TIMEOUT_S: Final = 30
"""Seconds that a command may wait for its answer before the connection counts as dead. It must exceed
Kombu's blocking read (BRPOP), which lasts 1 s; larger hides a dead broker for longer."""
_HEALTH_CHECK_S: Final = 10
"""Seconds of idleness after which the client checks a connection before its next use, and by which an answer
to BRPOP may be late before Kombu drops the connection. Larger finds a dead peer later."""
if sys.platform == "darwin":
    _IDLE_OPTION = socket.TCP_KEEPALIVE
else:
    _IDLE_OPTION = socket.TCP_KEEPIDLE
"""One option of TCP, by its name in tcp(4) of macOS and in tcp(7) of Linux."""
_KEEPALIVE_IDLE_S: Final = 10
"""Seconds of silence before TCP probes the peer. With the next two, a dead peer is noticed after
10 + 3 * 5 = 25 seconds, before `SOCKET_TIMEOUT_S`."""
_KEEPALIVE_INTERVAL_S: Final = 5
"""Seconds between two TCP probes."""
_KEEPALIVE_PROBES: Final = 3
"""Unanswered TCP probes that end a connection; one or two can be lost on a healthy network."""


class Publisher(Protocol):
    """The part of `kombu.Producer` that `publish` uses."""

    def publish(self, body: Any, **properties: Any) -> Any:
        """Put a message into a queue."""


def agent_key(agent_id: str, name: str) -> str:
    """One of an agent's own keys, without the lab's key prefix. `name` is one of `AGENT_KEYS`."""
    return f"agent.{agent_id}.{name}"


def agent_queue(agent_id: str) -> str:
    """Return the list that carries envelopes to one agent."""
    return agent_key(agent_id, "jobs")


def ingest_queue(agent_id: str) -> str:
    """Return the list of one agent's envelopes to the farm: it alone appends, the farm alone reads."""
    return agent_key(agent_id, "ingest")


def publish(producer: Publisher, task: str, queue: str, envelope: str) -> None:
    """Put one call of `task` with the envelope as its only argument into a queue, in Celery's message form.

    Raises what the broker's client raises.
    """
    call_id = str(uuid.uuid4())
    producer.publish(
        # Version 2 of Celery's protocol: arguments, keyword arguments,
        # what follows; the task is in the headers.
        [[envelope], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
        exchange="",
        routing_key=queue,
        serializer="json",
        headers={"lang": "py", "task": task, "id": call_id, "root_id": call_id, "parent_id": None},
        correlation_id=call_id,
        retry=False,
    )


def new_ping() -> str:
    """Return a text that one end sends to itself: its return proves that the broker accepts and delivers."""
    return _PING_PREFIX + secrets.token_hex(_PING_BYTES)


def is_ping(text: str) -> bool:
    """Whether a queued text is a ping, of any process, instead of an envelope."""
    return text.startswith(_PING_PREFIX)


def transport_options(key_prefix: str) -> dict[str, Any]:
    """Kombu's options for Redis that both ends share.

    Retries are off: a process that loses the broker logs it and connects again itself, which also restores
    what a reconnection inside the client would silently lose.
    """
    return {
        "global_keyprefix": key_prefix,
        # One list for each queue: by default Kombu reads one for each of four priorities.
        "priority_steps": [0],
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "socket_keepalive_options": {
            _IDLE_OPTION: _KEEPALIVE_IDLE_S,
            socket.TCP_KEEPINTVL: _KEEPALIVE_INTERVAL_S,
            socket.TCP_KEEPCNT: _KEEPALIVE_PROBES,
        },
        "health_check_interval": _HEALTH_CHECK_S,
        "retry_on_timeout": False,
    }


def farm_options(key_prefix: str) -> dict[str, Any]:
    """Kombu's options for the farm's end: what it has not acknowledged is kept, and delivered again."""
    return {
        **transport_options(key_prefix),
        "visibility_timeout": VISIBILITY_TIMEOUT_S,
        "unacked_key": INGEST_UNACKED_KEY,
        "unacked_index_key": f"{INGEST_UNACKED_KEY}_index",
        "unacked_mutex_key": f"{INGEST_UNACKED_KEY}_mutex",
    }


def agent_options(key_prefix: str) -> dict[str, Any]:
    """Kombu's options for an agent's end. It keeps no message at the broker: the farm repeats what was lost.

    Keeping them would take Kombu's lock, which is a script, and no agent may run scripts.
    """
    return {**transport_options(key_prefix), "ack_emulation": False}


def tls_options(url: str, ca_file: Path | None) -> dict[str, Any]:
    """Options that check the broker's certificate where the URL says `rediss://`; empty for any other URL.

    `ca_file`: CA certificates as PEM, None: the system's.
    """
    if not url.startswith("rediss://"):
        return {}
    own = {} if ca_file is None else {"ssl_ca_certs": str(ca_file)}
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **own}


def client_url(url: str) -> str:
    """Return a broker's URL for Redis' own client, which calls Kombu's `redis+socket://` `unix://`."""
    return url.replace("redis+socket://", "unix://", 1)
