"""Connects the link to the broker, and defines its Celery application with one task."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Connection, Exchange, Queue

from agent.wire.bounded_transport import BoundedConnection
from agent.wire.queue import agent_options, agent_queue, ingest_queue, tls_options
from agent.wire.service_urls import for_ingest


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
        return agent_queue(self.agent_id)

    @property
    def ingest_queue(self) -> str:
        """The queue of what this agent tells the farm."""
        return ingest_queue(self.agent_id)

    def transport_options(self) -> dict[str, Any]:
        """Kombu's options for Redis."""
        return agent_options(self.key_prefix)

    def tls(self) -> dict[str, Any]:
        """Options that check the broker's certificate; empty without TLS."""
        return tls_options(self.url, self.ca_file)

    def application(self) -> Celery:
        """Create a Celery application that takes one kind of task, as JSON, from the agent's own queue."""
        # Acknowledged on receipt, one message at a time and no reconnection: the farm repeats what a link
        # lost, and the daemon starts another link.
        app = Celery("farm-agent", set_as_current=False)
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


def direct_queue(name: str) -> Queue:
    """Return a list in Redis, reached by its name alone: no exchange, no binding."""
    return Queue(name, Exchange("", type="direct"), routing_key=name, durable=True)
