"""Enrol this host in a lab: a one-time token of the farm is exchanged for credentials that are made here."""

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from agent.wire.credentials import FILE, Applicant, Credentials, farm_of
from agent.wire.logs import brief
from agent.wire.service_urls import crosses_in_the_clear

TOKEN_VARIABLE: Final = "FARM_ENROL_TOKEN"  # noqa: S105  # a name
SERVER_VARIABLE: Final = "FARM_SERVER"

_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
"""Seconds without a byte before the request fails, and to connect: a person waits for it."""
_LARGEST_ANSWER: Final = 256 * 1024
"""Largest answer in bytes that can be a farm's. A farm sends keys and at most two CA certificates."""

log = logging.getLogger(__name__)


class EnrolmentError(Exception):
    """This host was not enrolled; the text tells why and does not contain the token."""


def enrol(server: str, token: str, state: Path) -> Credentials:
    """Send new keys to the farm's endpoint, write the credentials. Raises `EnrolmentError`."""
    applicant = Applicant.new()
    try:
        # For its check alone: what is no token is not sent.
        farm_of(token)
        if crosses_in_the_clear(server):
            log.warning("THE TOKEN CROSSES THE NETWORK IN THE CLEAR: %s has no TLS; use https://", server)
        credentials = applicant.accept(token, _post(server, applicant.request(token)))
        credentials.write(state)
    except (ValueError, httpx.InvalidURL) as error:
        raise EnrolmentError(str(error)) from error
    except httpx.HTTPError as error:
        raise EnrolmentError(f"{server} cannot be reached: {brief(error)}") from error
    except OSError as error:
        raise EnrolmentError(f"{state} cannot store the credentials: {error.strerror}") from error
    return credentials


def enrol_once(state: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Enrol a host without credentials, with `$FARM_ENROL_TOKEN` at `$FARM_SERVER`, where they are set.

    Raises `EnrolmentError`.
    """
    token = environment.get(TOKEN_VARIABLE)
    if not token or (state / FILE).exists():
        return
    server = environment.get(SERVER_VARIABLE)
    if not server:
        raise EnrolmentError(
            f"{TOKEN_VARIABLE} is set and {SERVER_VARIABLE} is not: set it to the farm's endpoint, "
            "e.g. https://lab:8460"
        )
    log.info("enrolled as %s", enrol(server, token, state).agent_id)


def _post(server: str, request: Mapping[str, str]) -> dict[str, Any]:
    context = ssl.create_default_context()
    with httpx.Client(verify=context, timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client:
        answer = client.post(f"{server.rstrip('/')}/enrol", json=dict(request))
    if len(answer.content) > _LARGEST_ANSWER:
        raise ValueError(f"{server} answers with {len(answer.content)} bytes; it is not a farm endpoint")
    try:
        granted = answer.json()
    except ValueError:
        granted = None
    if not isinstance(granted, dict):
        raise ValueError(
            f"{server} answers with status {answer.status_code} and not with a JSON object; "
            "it is not a farm endpoint"
        )
    if answer.status_code != 200:
        raise ValueError(f"{server} refuses: {granted.get('error', answer.reason_phrase)}"[:500])
    return granted
