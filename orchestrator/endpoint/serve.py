"""The endpoint as `farm serve` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.config.address import Address
from orchestrator.endpoint.agent_registry import Records
from orchestrator.endpoint.app import application
from orchestrator.endpoint.server import EndpointServer
from orchestrator.sources.store import Store
from orchestrator.trust.credentials_service import Office


@contextmanager
def answering(office: Office, address: Address) -> Iterator[None]:
    """Answer over HTTP at this address within the block. Raises `FarmError`."""
    address.require_certificate()
    records = Records(office.database, address, office.ring.keys, office.admit)
    store = Store(office.home.store)
    app = application(
        office.database, store, office.lab.limits, records, address.read_token, address.submit_token
    )
    with EndpointServer(app, address):
        yield
