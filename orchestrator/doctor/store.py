"""Checks the store and the endpoint, each with the fix."""

import http.client
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import StoreLimits, require_budget, size_text, used_bytes
from orchestrator.db.engine.sessions import Database
from orchestrator.doctor.check import Check
from orchestrator.endpoint.client import host_of_files, open_connection
from orchestrator.errors import FarmError
from orchestrator.sources.store import Store

ANSWER_LIMIT_S: Final = 5.0
"""Seconds that the endpoint has to answer. Chosen: `/health` does no work, so a slower answer is a fault."""

SOON: Final = timedelta(days=14)
"""A certificate that expires within this time is a fault. Chosen: enough time to renew it by hand."""


def store_check(root: Path, limits: StoreLimits) -> Check:
    """Whether the store takes new models. Raises nothing."""
    try:
        require_budget(root, limits)
    except FarmError as error:
        why, _, fix = str(error).rpartition("; ")
        return Check("store", False, why, fix)
    except OSError as error:
        return Check("store", False, f"{root} cannot be read: {error.strerror}", "see the check of the home")
    budget = "no budget" if limits.store_bytes is None else f"budget {size_text(limits.store_bytes)}"
    return Check("store", True, f"{size_text(used_bytes(root))}, {budget}")


def upload_check(root: Path, lab: LabConfig, database: Database) -> Check | None:
    """Return whether models submitted here reach the farm's store; None: it is here. Raises `FarmError`."""
    host = host_of_files(Store(root), database)
    if host is None:
        return None
    found = f"the farm's files are on {host}; this machine"
    if lab.address is None or lab.address.submit_token is None:
        fix = "set FARM_ENDPOINT and FARM_SUBMIT_TOKEN as the server has them, or submit there"
        return Check("upload", False, f"{found} has no way to send models there", fix)
    return Check("upload", True, f"{found} sends models to {lab.address.url}")


def endpoint_check(address: Address) -> Check:
    """Check that the endpoint answers as for an agent, and that its certificate stays valid."""
    try:
        answer, ends_at = _ask(address)
    except ssl.SSLError as error:
        fix = "correct FARM_TLS_CERT, FARM_TLS_KEY and FARM_TLS_CA"
        return Check("endpoint", False, f"{address.url}: TLS fails: {error}", fix)
    except (OSError, http.client.HTTPException, FarmError) as error:
        fix = "start it: farm lab serve; it listens where FARM_ENDPOINT leads"
        return Check("endpoint", False, f"{address.url} does not answer: {error}", fix)
    if answer.get("farm") != "well":
        return Check("endpoint", False, f"{address.url} is not a farm endpoint", "correct FARM_ENDPOINT")
    if ends_at is not None and ends_at < utc_now() + SOON:
        found = f"the certificate of {address.url} ends {ends_at:%Y-%m-%d}"
        return Check("endpoint", False, found, "renew it, and restart farm lab serve")
    if address.is_open:
        found = f"{address.url}: tokens cross the network in the clear"
        return Check(
            "endpoint",
            False,
            found,
            "set FARM_TLS_CERT and FARM_TLS_KEY, and let FARM_ENDPOINT begin with https",
        )
    return Check("endpoint", True, f"answers at {address.url}; for Prometheus: {address.url}/metrics")


def _ask(address: Address) -> tuple[dict[str, Any], datetime | None]:
    ends_at = None
    connection = open_connection(address, ANSWER_LIMIT_S)
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            ends_at = _end_of(connection.sock)
        connection.request("GET", "/health")
        body = connection.getresponse().read(10_000)
    finally:
        connection.close()
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}, ends_at


def _end_of(connection: ssl.SSLSocket) -> datetime | None:
    certificate = connection.getpeercert() or {}
    text = certificate.get("notAfter")
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC) if isinstance(text, str) else None
