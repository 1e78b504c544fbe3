"""What is wrong with the store and the endpoint, one line each, with the fix."""

from __future__ import annotations

import http.client
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from orchestrator.config.address import Address
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import StoreLimits, require_budget, size_text, used_bytes
from orchestrator.db.engine.sessions import Database
from orchestrator.doctor.check import Check
from orchestrator.endpoint.client import host_of_files
from orchestrator.errors import FarmError
from orchestrator.sources.store import Store

ANSWER_LIMIT_S: Final = 5.0
SOON: Final = timedelta(days=14)
"""So long before its end a certificate is a fault."""


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


def delivery_check(root: Path, lab: LabConfig, database: Database) -> Check | None:
    """Whether what is submitted on this machine gets to the farm's store; None: this is the farm's store.

    Raises `FarmError`.
    """
    host = host_of_files(Store(root), database)
    if host is None:
        return None
    found = f"the farm's files are on {host}; this machine"
    if lab.address is None or lab.address.submit_token is None:
        fix = "set FARM_ENDPOINT and FARM_SUBMIT_TOKEN as the server has them, or submit there"
        return Check("delivery", False, f"{found} has no way to send models there", fix)
    return Check("delivery", True, f"{found} sends models to {lab.address.url}")


def endpoint_check(address: Address) -> Check:
    """Whether the endpoint answers as agents would see it, and for how long its certificate holds."""
    try:
        said, ends_at = _ask(address)
    except ssl.SSLError as error:
        fix = "correct FARM_TLS_CERT, FARM_TLS_KEY and FARM_TLS_CA"
        return Check("endpoint", False, f"{address.url}: no trusted TLS: {error}", fix)
    except (OSError, http.client.HTTPException, FarmError) as error:
        fix = "start it: farm serve; it answers under FARM_ENDPOINT"
        return Check("endpoint", False, f"{address.url} does not answer: {error}", fix)
    if said.get("farm") != "well":
        return Check("endpoint", False, f"{address.url} is no farm's", "correct FARM_ENDPOINT")
    if ends_at is not None and ends_at < utc_now() + SOON:
        found = f"the certificate of {address.url} ends {ends_at:%Y-%m-%d}"
        return Check("endpoint", False, found, "renew it, and restart farm serve")
    if address.is_open:
        found = f"{address.url}: tokens cross the network in the clear"
        return Check("endpoint", False, found, "set FARM_TLS_CERT and FARM_TLS_KEY, and say https")
    return Check("endpoint", True, f"answers at {address.url}")


def _ask(address: Address) -> tuple[dict[str, Any], datetime | None]:
    parts = urlsplit(address.url)
    host, ends_at = str(parts.hostname), None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cadata=address.authority_text())
        connection = http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_LIMIT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=ANSWER_LIMIT_S)
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
