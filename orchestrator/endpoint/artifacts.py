"""Serves models and receives samples over HTTP. The name of an artifact is a sha256 and nothing else."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final

import anyio
from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from orchestrator.config.limits import StoreLimits, require_floor
from orchestrator.endpoint.access import Gate
from orchestrator.endpoint.body import Body, announced
from orchestrator.errors import FarmError, UsageError
from orchestrator.sources.store import Store, TooLargeError

# Nineteen digits hold any offset; more would be work for `int` and nothing else.
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class OutOfRangeError(ValueError):
    """The range lies outside the file."""


def asked_part(header: str | None, size: int) -> Part | None:
    """Return the part that a `Range` header asks for of a file of `size` bytes; None: the whole file.

    A header of another form, or with several ranges, asks for the whole file, as RFC 9110 (14.2) allows.
    Raises `OutOfRangeError`.
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    # `bytes=-` names no byte.
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        # `bytes=-N` asks for the last N bytes (RFC 9110, 14.1.2).
        start, end = max(0, size - int(found[2])), size
    else:
        start = int(found[1])
        end = min(size, int(found[2]) + 1) if found[2] else size
        # RFC 9110 (14.1.1) has a range that ends before it begins ignored, not refused.
        if found[2] and int(found[2]) < start:
            return None
    if start >= size:
        raise OutOfRangeError(f"byte {start} of {size}")
    return Part(start, end)


MOST_UPLOADS: Final = 16
"""Uploads at a time; each takes a thread for as long as its sender takes. Chosen: further uploads wait, and
the farm keeps threads for other requests.
"""

_BLOCK_BYTES = 1 << 20
"""Bytes of one read and one write while a file is sent: large enough that calls cost nothing beside the
copy.
"""
_KIND = "application/octet-stream"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The handlers of `/artifacts/{sha256}` and, where `are_samples`, of `/samples/{sha256}`."""

    store: Store
    limits: StoreLimits
    gate: Gate
    are_samples: Callable[[str], bool]
    uploads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MOST_UPLOADS))

    async def send(self, request: Request) -> Response:
        """`GET`, `HEAD /artifacts/{sha256}`: the file, or the rest of it from a byte on.

        An agent gets the models of its own attempts and no others.
        """
        sha256 = request.path_params["sha256"]
        await self.gate.fetcher(request, sha256)
        return await self._answer(request, sha256)

    async def show(self, request: Request) -> Response:
        """`GET /samples/{sha256}`: the raw samples of a result, for readers."""
        await self.gate.reader(request)
        sha256 = request.path_params["sha256"]
        if not await run_in_threadpool(self.are_samples, sha256):
            raise HTTPException(404, f"no result has the samples {sha256}")
        return await self._answer(request, sha256)

    async def _answer(self, request: Request, sha256: str) -> Response:
        try:
            file = await run_in_threadpool(self.store.open, sha256)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        except FileNotFoundError as error:
            raise HTTPException(404, f"the farm has no artifact {sha256}") from error
        size = os.fstat(file.fileno()).st_size
        headers = {"accept-ranges": "bytes", "etag": f'"{sha256}"', "cache-control": "no-store"}
        try:
            part = asked_part(request.headers.get("range"), size)
        except OutOfRangeError as error:
            file.close()
            raise HTTPException(416, str(error), {"content-range": f"bytes */{size}"}) from error
        chosen = part or Part(0, size)
        headers["content-length"] = str(chosen.size)
        if part is not None:
            headers["content-range"] = f"bytes {part.start}-{part.end - 1}/{size}"
        status = 200 if part is None else 206
        # Starlette sends HEAD to the handlers of GET.
        if request.method == "HEAD":
            file.close()
            return Response(status_code=status, headers=headers, media_type=_KIND)
        return _PartOfFile(file, chosen, status, headers)

    async def has(self, request: Request) -> Response:
        """`HEAD /samples/{sha256}`: 200 where the farm has the file, which it keeps for the coming result."""
        await self.gate.agent(request)
        try:
            found = await run_in_threadpool(self.store.touch, request.path_params["sha256"])
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        return Response(status_code=200 if found else 404)

    async def receive(self, request: Request) -> Response:
        """`PUT /samples/{sha256}`: the file is stored if its sha256 is the name."""
        agent = await self.gate.agent(request)
        sha256 = request.path_params["sha256"]
        size = announced(request, self.limits.samples_bytes, "FARM_SAMPLES_BYTES")
        body = Body(request.stream())
        try:
            stored = await to_thread.run_sync(self._store, body, sha256, size, limiter=self.uploads)
        except ClientDisconnect:
            # Nobody is left to read it, but a handler has to return something.
            return Response(status_code=400)
        except TooLargeError as error:
            raise HTTPException(413, str(error)) from error
        except UsageError as error:
            raise HTTPException(422, str(error)) from error
        except FarmError as error:
            log.error("samples of agent %s are not stored: %s", agent, error)
            # An agent sends the whole body before it reads: cut off, it would take this for a broken network.
            await body.drop(self.limits.samples_bytes)
            raise HTTPException(507, str(error)) from error
        return JSONResponse({"sha256": sha256, "bytes": stored}, 201)

    def _store(self, body: Body, sha256: str, announced: int) -> int:
        self.store.root.mkdir(parents=True, exist_ok=True)
        require_floor(self.store.root, self.limits, announced)
        capped = replace(self.store, max_bytes=self.limits.samples_bytes, limits=self.limits)
        try:
            return capped.put(body, f"samples {sha256[:12]}", sha256).size_bytes
        except ValueError as error:
            raise UsageError(str(error)) from error


class _PartOfFile(StreamingResponse):
    """Sends a part of a file, and closes it at once also where the receiver hangs up."""

    def __init__(self, file: BinaryIO, part: Part, status: int, headers: dict[str, str]) -> None:
        super().__init__(_blocks(file, part), status, headers, _KIND)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


def _blocks(file: BinaryIO, part: Part) -> Iterator[bytes]:
    file.seek(part.start)
    left = part.size
    while left:
        block = file.read(min(left, _BLOCK_BYTES))
        if not block:
            return
        left -= len(block)
        yield block
