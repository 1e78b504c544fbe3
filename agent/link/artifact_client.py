"""Artifacts over HTTP: models come from the farm's endpoint, samples go there. All by sha256."""

import hashlib
import json
import logging
import os
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import httpx

from agent.attempt.files import JOB_FILE, MAX_JOB_BYTES
from agent.link.artifact_sync import Artifacts, NeverTakenError, SharedStore
from agent.link.cache import Cache, budget_from
from agent.processes.left_files import open_left
from agent.wire.logs import brief
from agent.wire.messages import artifact_path

TRIES: Final = 5
"""Consecutive tries without a further byte, or with wrong bytes at the end, before a transfer fails.
Larger waits longer for an endpoint that is away; a try with progress starts the count again."""

PAUSE_S: Final = 1.0
"""Seconds of the pause after the first such try; the n-th pause is n times as long, 10 s in all."""
_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
"""Seconds without a byte before a transfer counts as broken, and to connect; its length is not limited."""
_BLOCK_BYTES: Final = 1 << 20
"""Bytes read from a file at once for an upload. Larger costs memory, smaller more system calls."""

_AGAIN: Final = frozenset({401, 403, 404, 408, 409, 425, 429})
"""The client errors (4xx) of HTTP that another try may not meet: a token is replaced, a farm is upgraded, a
load passes. Every other one is about what was sent, and stays.
"""

_BUSY: Final = frozenset({408, 425, 429})
"""The client errors after which a model is asked for again at once: each says that the farm was busy."""

log = logging.getLogger(__name__)


class TransferError(OSError):
    """A file could not be transferred; the text tells why."""


class _BrokenError(Exception):
    """One try ended early; the next one continues from there."""


@dataclass(slots=True)
class EndpointArtifacts:
    """The files of the farm's endpoint. A model that does not hash to its name is fetched again."""

    client: httpx.Client
    cache: Cache
    pause_s: float = PAUSE_S
    _busy: dict[str, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def has(self, sha256: str, size: int) -> bool:
        """Whether the model is here and was verified."""
        return self.cache.knows(sha256, size)

    def has_room(self) -> bool:
        """Whether the disk has room for an attempt to work."""
        return self.cache.has_room()

    def fetch(self, sha256: str, size: int) -> None:
        """Make sure that the model is here and intact. Raises `TransferError`, or `OSError` without room."""
        with self._alone(sha256):
            if self.cache.knows(sha256, size) or self.cache.verify(sha256, size):
                return
            with self.cache.room_for(sha256, size):
                self._fetch(sha256, size)

    def hold(self, attempt_id: str, files: Iterable[str]) -> None:
        """Protect the files that an attempt is going to use: they are not evicted before `release`."""
        self.cache.held[attempt_id] = frozenset(files)

    def release(self, attempt_id: str, *, damaged: bool) -> None:
        """End that protection; `damaged` files are hashed before their next use."""
        for sha256 in self.cache.held.pop(attempt_id, frozenset()):
            if damaged:
                self.cache.doubt(sha256)

    def upload(self, sha256: str) -> None:
        """Make sure that the farm has the samples, then delete them here.

        Raises `TransferError`; `NeverTakenError` where no later try can do better, and deletes what is here.
        """
        path = artifact_path(self.cache.root, sha256)
        # The daemon repeats a result whose receipt is late: its samples may be there already.
        known = self._request("HEAD", f"/samples/{sha256}")
        if known.status_code == 404:
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    # httpx sends a generator in chunks and without its size,
                    # by which the farm decides if it has room.
                    headers = {"content-length": str(size)}
                    answer = self._request(
                        "PUT", f"/samples/{sha256}", content=_blocks(file), headers=headers
                    )
            except FileNotFoundError as error:
                raise NeverTakenError(f"samples {sha256[:12]} are neither here nor on the farm") from error
            if 400 <= answer.status_code < 500 and answer.status_code not in _AGAIN:
                path.unlink(missing_ok=True)
                raise NeverTakenError(f"the farm answers {answer.status_code}: {_error_text(answer)}")
            _expect(answer, 201)
        else:
            _expect(known, 200)
        path.unlink(missing_ok=True)

    def _fetch(self, sha256: str, size: int) -> None:
        part = self.cache.incoming(sha256)
        faults, best, why = 0, _size(part), ""
        while faults < TRIES:
            try:
                self._resume(sha256, size, part)
            except _BrokenError as error:
                why = str(error)
            else:
                if self._is_right(part, sha256, size):
                    self.cache.admit(sha256, part)
                    return
                why = "its bytes do not hash to its name"
                part.unlink(missing_ok=True)
                best = 0
                faults += 1
                log.warning("model %s arrived damaged and is fetched again", sha256[:12])
                continue
            now = _size(part)
            faults = 0 if now > best else faults + 1
            best = max(best, now)
            if faults < TRIES:
                time.sleep(self.pause_s * faults)
        raise TransferError(f"it cannot be fetched from {self.client.base_url}: {why}")

    def _resume(self, sha256: str, size: int, part: Path) -> None:
        """Fetch what is missing of a file. Raises `_BrokenError`; `TransferError` where no retry helps."""
        start = _size(part)
        # All bytes are here, as an earlier try or process left them; `_fetch` checks their hash.
        if start == size:
            return
        if start > size:
            part.unlink()
            start = 0
        headers = {"range": f"bytes={start}-"} if start else {}
        try:
            with self.client.stream("GET", f"/artifacts/{sha256}", headers=headers) as answer:
                self._receive(answer, start, size, part)
        except httpx.TransportError as error:
            raise _BrokenError(_brief(error)) from error

    def _receive(self, answer: httpx.Response, start: int, size: int, part: Path) -> None:
        if 400 <= answer.status_code < 500 and answer.status_code not in _BUSY:
            answer.read()
            raise TransferError(f"the farm answers {answer.status_code}: {_error_text(answer)}")
        if answer.status_code not in (200, 206):
            answer.read()
            raise _BrokenError(f"the farm answers {answer.status_code}: {_error_text(answer)}")
        expected = f"bytes {start}-{size - 1}/{size}"
        # A server may ignore the range: its 200 has the whole file, which replaces the part.
        resumed = answer.status_code == 206
        # Appended, another range would stand in the wrong place.
        if resumed and answer.headers.get("content-range") != expected:
            part.unlink(missing_ok=True)
            raise _BrokenError(f"the farm sends {answer.headers.get('content-range')!r}, not {expected!r}")
        left = size - start if resumed else size
        with part.open("ab" if resumed else "wb") as out:
            # Not decompressed, whatever the answer says of itself: `left` bounds what is written.
            for block in answer.iter_raw():
                left -= len(block)
                if left < 0:
                    # Nothing of it is the model's for sure: the next try begins anew.
                    out.truncate(0)
                    raise _BrokenError(f"the farm sends more than the {size} bytes of the model")
                out.write(block)
        if left:
            raise _BrokenError(f"{left} of {size} bytes are missing")

    def _is_right(self, part: Path, sha256: str, size: int) -> bool:
        with part.open("rb") as file:
            return _size(part) == size and hashlib.file_digest(file, "sha256").hexdigest() == sha256

    def _request(
        self,
        method: str,
        path: str,
        content: Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            return self.client.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise TransferError(f"{self.client.base_url} cannot be reached: {_brief(error)}") from error

    @contextmanager
    def _alone(self, sha256: str) -> Iterator[None]:
        """Hold a file's own lock, so that two jobs of one model fetch it once."""
        with self._guard:
            lock = self._busy.setdefault(sha256, threading.Lock())
        with lock:
            yield


def artifacts_of(credentials: Mapping[str, Any], state: Path) -> Artifacts:
    """Return where an agent's files come from: the endpoint in its credentials, else the farm's own store.

    A `store` that is a link to the farm's needs no endpoint. Raises `ValueError`.
    """
    url = credentials.get("endpoint")
    if not url or (state / "store").is_symlink():
        return SharedStore()
    token = credentials.get("token")
    if not isinstance(url, str) or not isinstance(token, str):
        raise ValueError("the credentials have an endpoint and no token; enrol again")
    return connect(url, token, credentials.get("endpoint_ca"), state)


def connect(url: str, token: str, authority: str | None, state: Path) -> EndpointArtifacts:
    """Return the artifacts of an enrolled agent; no connection is opened yet.

    `authority`: PEM of the CA that signed the endpoint's certificate, None: the system's CAs. Raises
    `ValueError` for an invalid certificate or cache budget.
    """
    try:
        context = ssl.create_default_context(cadata=authority)
    except ssl.SSLError as error:
        raise ValueError(f"the CA in the credentials is not a certificate: {error}") from error
    client = httpx.Client(
        base_url=url,
        # Ranges count the file's own bytes, of which a compressed answer has none.
        headers={"authorization": f"Bearer {token}", "accept-encoding": "identity"},
        timeout=_TIMEOUT,
        verify=context,
        # The farm's endpoint redirects nobody.
        follow_redirects=False,
        trust_env=False,
    )
    cache = Cache(state / "store", budget_from(), lambda: files_of_running(state / "work"))
    return EndpointArtifacts(client, cache)


def files_of_running(work: Path) -> set[str]:
    """Return the artifacts of running attempts, by the job files in their work folders."""
    found = set()
    for folder in work.glob("*"):
        try:
            with open_left(folder / JOB_FILE) as file:
                job = json.loads(file.read(MAX_JOB_BYTES))["job"]
            found.add(str(job["model_sha256"]))
            found |= {str(known["sha256"]) for known in job.get("references", ())}
            found |= {
                str(spec["data"]["sha256"]) for spec in job.get("inputs", {}).values() if "data" in spec
            }
            # Last: without labelled data this raises, and what was found before counts.
            found.add(str(job["plan"]["labelled"]["sha256"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _expect(answer: httpx.Response, status: int) -> None:
    if answer.status_code != status:
        raise TransferError(f"the farm answers {answer.status_code}: {_error_text(answer)}")


def _error_text(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


def _brief(error: Exception) -> str:
    found = brief(error)
    # OpenSSL judges by this machine's clock, which is as often wrong as a certificate is old.
    of_another_time = any(words in found for words in ("not yet valid", "has expired"))
    return f"{found}; is this machine's clock right?" if of_another_time else found
