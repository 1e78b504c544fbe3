"""How the link reaches the broker: names of queues, Celery's settings, and the form of its messages."""

from __future__ import annotations

import socket
import ssl
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from celery import Celery
from kombu import Connection, Exchange, Producer, Queue

from agent.wire.credentials import for_ingest

MESSAGE_TASK: Final = "farm.message"
INGEST_TASK: Final = "farm.ingest"
INGEST_QUEUE: Final = "ingest"
MAX_ENVELOPE_BYTES: Final = 8 * 1024 * 1024

VISIBILITY_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True)
class Broker:
    """Where the broker is and who we are there. `url` may hold a password: it is never shown."""

    agent_id: str
    url: str = field(repr=False)
    key_prefix: str = "farm:"
    ca_file: Path | None = None

    @property
    def queue(self) -> str:
        """The agent's own queue. Every key that an agent writes, but the ingest queue, begins so."""
        return f"agent.{self.agent_id}.jobs"

    def transport_options(self) -> dict[str, Any]:
        """Redis, with connections that notice a dead peer within half a minute."""
        return {
            "global_keyprefix": self.key_prefix,
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "priority_steps": [0],
            "unacked_key": f"agent.{self.agent_id}.unacked",
            "unacked_index_key": f"agent.{self.agent_id}.unacked_index",
            "unacked_mutex_key": f"agent.{self.agent_id}.unacked_mutex",
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

    def tls(self) -> dict[str, Any] | None:
        """Certificates are checked whenever the URL says `rediss://`."""
        if not self.url.startswith("rediss://"):
            return None
        options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        if self.ca_file is not None:
            options["ssl_ca_certs"] = str(self.ca_file)
        return options

    def application(self) -> Celery:
        """A Celery application that takes one kind of task, as JSON, from the agent's own queue."""
        app = Celery("farm-agent", set_as_current=False)
        queue = direct_queue(self.queue)
        app.conf.update(
            broker_url=self.url,
            broker_use_ssl=self.tls(),
            broker_transport_options=self.transport_options(),
            broker_connection_retry=False,
            broker_connection_retry_on_startup=False,
            broker_heartbeat=0,
            task_queues=[queue],
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
        """A connection for the agent's own queue, not yet opened."""
        return self._connection(self.url)

    def ingest_connection(self) -> Connection:
        """A connection for the ingest queue, not yet opened: as the user that may add to it alone."""
        return self._connection(for_ingest(self.url))

    def _connection(self, url: str) -> Connection:
        return Connection(url, ssl=self.tls() or False, transport_options=self.transport_options())


def direct_queue(name: str) -> Queue:
    """A list in Redis, reached by its name alone: no exchange, no binding."""
    return Queue(name, Exchange("", type="direct"), routing_key=name, durable=True)


def publish(producer: Producer, task: str, queue: str, envelope: str) -> None:
    """Put one call of `task` with the envelope as its argument into a queue, in Celery's message form.

    Raises what the broker's client raises.
    """
    name = str(uuid.uuid4())
    producer.publish(
        [[envelope], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
        exchange="",
        routing_key=queue,
        serializer="json",
        headers={"lang": "py", "task": task, "id": name, "root_id": name, "parent_id": None},
        correlation_id=name,
        retry=False,
    )
