"""Runs the endpoint within `farm serve`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.address import Address
from orchestrator.endpoint.agent_registry import AgentRegistry
from orchestrator.endpoint.app import application
from orchestrator.endpoint.server import EndpointServer
from orchestrator.endpoint.user_calls import Face
from orchestrator.monitoring.metrics_page import MetricsPage
from orchestrator.sources.store import Store
from orchestrator.trust.credentials_service import CredentialsService


@contextmanager
def answering(
    credentials: CredentialsService, address: Address, face: Face, metrics: MetricsPage | None = None
) -> Iterator[None]:
    """Serve HTTP at this address until the block ends; `face`: what users may call. Raises `FarmError`."""
    address.require_certificate()
    registry = AgentRegistry(credentials.database, address, credentials.key_folder.keys, credentials.admit)
    store = Store(credentials.home.store)
    app = application(
        credentials.database,
        store,
        credentials.lab.limits,
        registry,
        address.read_token,
        address.submit_token,
        face,
        address,
        metrics,
    )
    with EndpointServer(app, address):
        yield
