"""Connects the link to the broker as the one machine that serves under its name; its Celery worker has one
queue, one task, one message at a time, acknowledged on receipt.

The broker holds the claim of the name, which the machine's link renews: a copy of an agent's disk is the same
agent a second time, and the measurements of two machines would look like one series.
"""

import hashlib
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from celery import Celery
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import WorkController
from kombu import Connection, compression
from redis import Redis

from agent.wire import queue
from agent.wire.bounded_transport import BoundedConnection, direct_queue
from agent.wire.service_urls import for_ingest
from runtime.common.system import sysctl


def register(app: Celery, on_message: Callable[[str], None]) -> None:
    """Make `on_message` the only task of an application; Celery's own (map, chain, clean-up) are removed.

    From now on this process reads no compressed message.
    """
    for kind in compression.encoders():
        compression.register(_refuse, _refuse, kind)
    app.task(name=queue.MESSAGE_TASK, ignore_result=True)(on_message)
    # This adds Celery's built-in tasks, which would otherwise come later.
    app.finalize()
    for name in [name for name in app.tasks if name != queue.MESSAGE_TASK]:
        app.tasks.unregister(name)


def _refuse(_body: bytes) -> bytes:
    """Refuse what would be decompressed before its signature is checked: a kilobyte can become a megabyte."""
    raise ValueError("a message whose body is compressed")


def work(app: Celery, name: str, on_message: Callable[[str], None]) -> str:
    """Call `on_message` for every message of the application's queue. Returns why the worker ended."""
    register(app, on_message)
    # No heartbeat, mingle or gossip: an agent's user has no right to the keys and channels that they need.
    worker = WorkController(
        app=app,
        hostname=f"link@{name}",
        pool_cls="solo",
        concurrency=1,
        loglevel="WARNING",
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
    )
    try:
        worker.start()
    except (WorkerShutdown, WorkerTerminate) as end:
        return f"the broker is lost: {end.__cause__ or end}"
    return "the worker ended"


@dataclass(frozen=True, slots=True)
class AgentBroker:
    """The broker's address and the agent that connects. `url` may hold a password: it is never shown."""

    agent_id: str
    url: str = field(repr=False)
    key_prefix: str = "farm:"
    ca_file: Path | None = None

    @property
    def queue(self) -> str:
        """The agent's own queue."""
        return queue.agent_queue(self.agent_id)

    @property
    def ingest_queue(self) -> str:
        """The queue of what this agent tells the farm."""
        return queue.ingest_queue(self.agent_id)

    def transport_options(self) -> dict[str, Any]:
        """Kombu's options for Redis."""
        return queue.agent_options(self.key_prefix)

    def tls(self) -> dict[str, Any]:
        """Options that check the broker's certificate; empty without TLS."""
        return queue.tls_options(self.url, self.ca_file)

    def application(self) -> Celery:
        """Create a Celery application that takes one kind of task, as JSON, from the agent's own queue."""
        # Acknowledged on receipt, one message at a time and no reconnection: the farm repeats what a link
        # lost, and the daemon starts another link.
        app = Celery("farm-agent", set_as_current=False)
        # Celery makes the worker's connections of this class.
        app.amqp.Connection = BoundedConnection
        app.conf.update(
            broker_url=self.url,
            broker_use_ssl=self.tls() or None,
            broker_transport_options=self.transport_options(),
            broker_connection_retry=False,
            broker_connection_retry_on_startup=False,
            broker_heartbeat=0,
            task_queues=[direct_queue(self.queue)],
            task_default_queue=self.queue,
            task_default_exchange="",
            task_default_routing_key=self.queue,
            task_create_missing_queues=False,
            task_serializer="json",
            accept_content=["json"],
            result_accept_content=["json"],
            event_serializer="json",
            task_ignore_result=True,
            task_track_started=False,
            task_acks_late=False,
            worker_prefetch_multiplier=1,
            worker_disable_prefetch=True,
            worker_send_task_events=False,
            worker_enable_remote_control=False,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            worker_cancel_long_running_tasks_on_connection_loss=False,
        )
        return app

    def connection(self) -> Connection:
        """Return a connection for the agent's own queue, not yet opened."""
        return self._connection(self.url)

    def ingest_connection(self) -> Connection:
        """Return a connection for the ingest queue, not yet opened: its user may only add to that queue."""
        return self._connection(for_ingest(self.url))

    def _connection(self, url: str) -> Connection:
        return BoundedConnection(url, ssl=self.tls() or False, transport_options=self.transport_options())


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_NAME: Final = "kern.bootsessionuuid"
"""The same of macOS, by sysctl(3)."""
_OWNER_DIGITS: Final = 32
"""Hex digits that tell an owner from all others: 128 bits of a sha256."""


def _boot() -> str:
    """Return what the kernel calls this run of it."""
    return sysctl(_BOOT_NAME)[_BOOT_NAME] if sys.platform == "darwin" else _BOOT.read_text()


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
        # The boot tells a copy of the disk from its original: host name and folder are the same.
        identity = f"{_boot()} {host} {state.resolve()}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:_OWNER_DIGITS]
        return cls(broker, f"{digest} {host}", lifetime_s)

    def renew(self) -> None:
        """Claim the name for `lifetime_s` more. Raises `NameTakenError`, or what Redis' client raises."""
        key = self.broker.key_prefix + queue.agent_key(self.broker.agent_id, "holder")
        milliseconds = int(1000 * self.lifetime_s)
        with self._client() as client:
            # NX lets one of two machines win; the other one reads its name.
            if client.set(key, self.owner, nx=True, px=milliseconds):
                return
            # Not one step, since no agent may run scripts: whoever takes a claim that expires in between
            # finds this owner at its next renewal, and leaves.
            found = client.get(key)
            # None: the claim has expired since, and is free.
            owner = found.decode(errors="replace") if isinstance(found, bytes) else self.owner
            if owner != self.owner:
                raise NameTakenError(
                    f"agent {self.broker.agent_id} is served from {owner.partition(' ')[2]!r}"
                )
            client.set(key, self.owner, px=milliseconds)

    def _client(self) -> Redis:
        limits = {"socket_connect_timeout": queue.CONNECT_TIMEOUT_S, "socket_timeout": queue.SOCKET_TIMEOUT_S}
        # RESP2 without driver info: an agent's user has no right to HELLO, nor to CLIENT SETINFO everywhere.
        plain: dict[str, Any] = {"protocol": 2, "driver_info": None}
        return Redis.from_url(queue.client_url(self.broker.url), **plain, **limits, **self.broker.tls())
