"""Uploads models to the farm's endpoint and downloads samples, on a machine without the farm's store."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from orchestrator.config.address import Address
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import size_text
from orchestrator.db.campaigns import farm_state
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.sources.store import Store

TRIES: Final = 5
"""Broken transfers in a row, without a byte of progress, after which an upload is given up. Chosen: with
the pauses between them, an upload survives 10 s without the farm.
"""

PAUSE_S: Final = 1.0
"""Seconds before the second try; each further pause is this much longer."""

_TIMEOUT_S = 60.0
"""Seconds without a byte after which a connection counts as broken: twice what the farm waits for a sender.
"""
_BROKEN = (OSError, http.client.HTTPException)


def upload(
    home: FarmHome, lab: LabConfig, database: Database, files: Iterable[str], note: Callable[[str], None]
) -> None:
    """Upload these files (sha256) from this machine's store to the farm's, where the two differ.

    Raises `UsageError` where the address or the token of the farm's endpoint is not configured; `FarmError`
    for a file that the farm refuses; `UnreachableError`.
    """
    store = Store(home.store)
    host = host_of_files(store, database)
    if host is None:
        return
    if lab.address is None or lab.address.submit_token is None:
        raise UsageError(
            f"the farm's models are kept on {host}, not in {store.root} of this machine; "
            "set FARM_ENDPOINT and FARM_SUBMIT_TOKEN as the server has them, or submit there"
        )
    sender = Sender(lab.address, lab.address.submit_token)
    for sha256 in dict.fromkeys(files):
        sender.send(sha256, store, note)


def host_of_files(store: Store, database: Database) -> str | None:
    """Return the machine whose store has the farm's files; None if this store has them."""
    with database.read() as session:
        state = farm_state.read_scheduler(session)
    return None if state is None or state.store in ("", store.identity()) else state.host


def fetch_samples(home: FarmHome, lab: LabConfig, host: str, sha256: str) -> None:
    """Copy the samples of a result from the store on `host` to this machine's. Raises `FarmError`."""
    if lab.address is None or lab.address.read_token is None:
        raise FarmError(
            f"the raw samples are in the store of {host}; set FARM_ENDPOINT and FARM_READ_TOKEN as there, "
            "or run this there"
        )
    connection = open_connection(lab.address)
    try:
        headers = {"Authorization": f"Bearer {lab.address.read_token}"}
        connection.request("GET", f"/samples/{sha256}", headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            why = _reason_in(answer.read(10_000))
            raise FarmError(f"{lab.address.url} answers {answer.status} for samples {sha256[:12]}: {why}")
        capped = Store(home.store, lab.limits.samples_bytes, lab.limits)
        capped.put(answer, f"samples {sha256[:12]}", sha256)
    except _BROKEN as error:
        raise UnreachableError(f"{lab.address.url} does not answer: {error}") from error
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends files of a store to the farm's endpoint. `what`: the setting that has the token."""

    address: Address
    token: str
    pause_s: float = PAUSE_S
    what: str = "FARM_SUBMIT_TOKEN"

    def send(self, sha256: str, store: Store, note: Callable[[str], None]) -> None:
        """Send a model unless the farm has it; a broken transfer resumes. Raises `FarmError`."""
        size = store.path(sha256).stat().st_size
        # Below 0: the first answer counts as progress, whatever the farm has.
        faults, best, why = 0, -1, ""
        while faults < TRIES:
            try:
                offset = self._offset(sha256)
                if offset is None:
                    return
                # Progress starts the count anew: a large model over a bad link may break many times.
                if offset > best:
                    faults, best = 0, offset
                # Said once: the first fault sets `why`.
                if not why:
                    note(f"sending model {sha256[:12]} ({size_text(size)}) to {self.address.url}")
                self._put(sha256, store, offset, size)
            except _BROKEN as error:
                why = f"{type(error).__name__}: {error}"
            except _AgainError as error:
                why = str(error)
            else:
                return
            faults += 1
            if faults < TRIES:
                time.sleep(self.pause_s * faults)
        raise UnreachableError(f"model {sha256[:12]} cannot be sent to {self.address.url}: {why}")

    def _offset(self, sha256: str) -> int | None:
        """Return the number of a model's bytes that the farm has; None if it has the whole model."""
        connection = open_connection(self.address)
        try:
            connection.request("HEAD", f"/models/{sha256}", headers=self._headers())
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status == 200:
            return None
        if answer.status == 404 and (offset := answer.getheader("upload-offset", "")).isdecimal():
            return int(offset)
        if answer.status in (401, 403):
            raise UsageError(f"{self.address.url} refuses {self.what}; set it as on the server")
        raise _AgainError(f"it answers {answer.status}")

    def _put(self, sha256: str, store: Store, offset: int, size: int) -> None:
        connection = open_connection(self.address)
        headers = self._headers() | {
            "Content-Range": f"bytes {offset}-{size - 1}/{size}",
            "Content-Length": str(size - offset),
        }
        broken: OSError | None = None
        try:
            with store.open(sha256) as file:
                file.seek(offset)
                # A farm that refuses answers and closes while this side sends: its answer tells why.
                try:
                    connection.request("PUT", f"/models/{sha256}", body=file, headers=headers)
                except OSError as error:
                    broken = error
            try:
                answer = connection.getresponse()
                body = answer.read(10_000)
            except _BROKEN as error:
                # Where no answer tells why, the error that interrupted the sending does.
                raise broken or error from error
        finally:
            connection.close()
        if answer.status == 201:
            return
        why = f"it answers {answer.status}: {_reason_in(body)}"
        # Too large, no room, or a whole file that is no model: another try would only bring the same answer.
        # Where the farm had its beginning from an earlier transfer, that may be what was wrong.
        if answer.status in (413, 507) or (answer.status == 422 and offset == 0):
            raise FarmError(f"model {sha256[:12]} is refused by {self.address.url}: {why}")
        raise _AgainError(why)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


class _AgainError(Exception):
    """One try failed; another may succeed."""


def open_connection(address: Address, timeout_s: float = _TIMEOUT_S) -> http.client.HTTPConnection:
    """Prepare a connection to the endpoint, not open yet; TLS trusts `address.authority` alone."""
    parts = urlsplit(address.url)
    if parts.scheme == "http":
        return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=timeout_s)
    context = ssl.create_default_context(cadata=address.authority_text())
    return http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=timeout_s, context=context)


def _reason_in(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
