"""The endpoint as `farm serve` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.address import Address
from orchestrator.endpoint.agent_registry import Records
from orchestrator.endpoint.app import application
from orchestrator.endpoint.server import EndpointServer
from orchestrator.sources.store import Store
from orchestrator.trust.credentials_service import CredentialsService


@contextmanager
def answering(credentials: CredentialsService, address: Address) -> Iterator[None]:
    """Answer over HTTP at this address within the block. Raises `FarmError`."""
    address.require_certificate()
    records = Records(credentials.database, address, credentials.key_folder.keys, credentials.admit)
    store = Store(credentials.home.store)
    app = application(
        credentials.database, store, credentials.lab.limits, records, address.read_token, address.submit_token
    )
    with EndpointServer(app, address):
        yield
