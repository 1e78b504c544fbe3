"""Receives models from other machines, in one or several pieces, and stores them if the hash matches."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import anyio
from anyio import to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from agent.wire.private_folder import FILE_MODE
from orchestrator.config.limits import StoreLimits, require_budget, require_floor
from orchestrator.endpoint.access import Gate
from orchestrator.endpoint.artifacts import Part
from orchestrator.endpoint.body import Body
from orchestrator.errors import FarmError, UsageError
from orchestrator.sources.content import require_uploaded
from orchestrator.sources.store import Store
from runtime.common.durable import lock_file

MOST_UPLOADS: Final = 8
"""Uploads of models at a time; each takes a thread for as long as its sender takes. Further ones wait."""

OFFSET_HEADER: Final = "upload-offset"
"""Header of an answer: how many bytes of the model the farm has already."""

_BLOCK_BYTES = 1 << 20
"""Bytes of one write while a model is received; after each, the disk's free space is checked again."""
_LEFT_WHOLE: Final = 8
"""Largest models whose bytes a sender's uploads may have together, the new one included, until a campaign
names them. Fewer refuse a campaign of many large models, which is placed once all are here; more lets a
single sender fill the disk."""

_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")

log = logging.getLogger(__name__)


class _NotNowError(Exception):
    """The sender has to query again how much the farm has."""


@dataclass(frozen=True, slots=True)
class ModelUploads:
    """The handlers of `/models/{sha256}`."""

    store: Store
    limits: StoreLimits
    gate: Gate
    senders: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MOST_UPLOADS))

    async def has(self, request: Request) -> Response:
        """`HEAD /models/{sha256}`: 200 where the farm has the model, else 404 and the bytes it has."""
        sender = await self.gate.submitter(request)
        sha256 = request.path_params["sha256"]
        try:
            if await run_in_threadpool(self.store.touch, sha256):
                return Response(status_code=200)
            offset = self.store.size_of_incoming(sha256, sender)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        return Response(status_code=404, headers={OFFSET_HEADER: str(offset)})

    async def receive(self, request: Request) -> Response:
        """`PUT /models/{sha256}`, `Content-Range: bytes N-M/SIZE`: the rest of the file, from byte N on."""
        sender = await self.gate.submitter(request)
        sha256, part = request.path_params["sha256"], self._rest(request)
        body = Body(request.stream())
        try:
            await to_thread.run_sync(self._grow, body, sha256, part, sender, limiter=self.senders)
        except ClientDisconnect:
            return Response(status_code=400)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        except _NotNowError as error:
            raise HTTPException(409, str(error)) from error
        except UsageError as error:
            raise HTTPException(422, str(error)) from error
        except (FarmError, OSError) as error:
            log.error("model %s is not stored: %s", sha256[:12], error)
            raise HTTPException(507, str(error)) from error
        return JSONResponse({"sha256": sha256, "bytes": part.end}, 201)

    def _rest(self, request: Request) -> Part:
        """Parse the range of a file's last bytes, up to its end. Raises `HTTPException` 400, 413."""
        found = _RANGE.fullmatch(request.headers.get("content-range", ""))
        # Without a range, zeros fail the check that follows.
        first, last, size = map(int, found.groups()) if found else (0, 0, 0)
        if not first <= last == size - 1:
            raise HTTPException(400, "a range up to the last byte is needed: Content-Range: bytes N-M/SIZE")
        if size > self.limits.artifact_bytes:
            limit = self.limits.artifact_bytes
            raise HTTPException(413, f"{size} bytes; the limit of the farm is {limit} (FARM_ARTIFACT_BYTES)")
        return Part(first, size)

    def _grow(self, body: Body, sha256: str, part: Part, sender: str) -> None:
        """Append the received bytes; those of a broken transfer stay for the sender's next try."""
        with self._opened(sha256, sender) as out:
            # Read again under the lock: another sender may have appended since this one queried the size.
            here = out.seek(0, os.SEEK_END)
            if here != part.start:
                raise _NotNowError(f"the farm has {here} bytes, not {part.start}; continue from there")
            if self.store.bytes_of_sender(sender) + part.size > _LEFT_WHOLE * self.limits.artifact_bytes:
                raise UsageError(
                    f"{sender} has sent {_LEFT_WHOLE} times the largest model that no campaign names: submit "
                    "it, or wait for an hour"
                )
            require_budget(self.store.root, self.limits, part.size)
            left = part.size
            while block := body.read(_BLOCK_BYTES):
                left -= len(block)
                # What goes beyond the announced size is not written: it could fill the disk.
                if left < 0:
                    break
                require_floor(self.store.root, self.limits, len(block))
                out.write(block)
            out.flush()
            if left:
                raise _NotNowError(f"{abs(left)} bytes too {'few' if left > 0 else 'many'}; send again")
            self.store.adopt(sha256, f"model {sha256[:12]}", require_uploaded, sender)

    @contextmanager
    def _opened(self, sha256: str, sender: str) -> Iterator[BinaryIO]:
        """Open the sender's growing file, locked for this request. Raises `ValueError` for no sha256."""
        path = self.store.incoming(sha256, sender)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, FILE_MODE), "ab") as out:
            try:
                # Not waited for: meanwhile this thread, one of a few, could receive nothing else.
                lock_file(out.fileno())
            except BlockingIOError as error:
                raise _NotNowError(
                    "the same sender is uploading this model already; ask again later"
                ) from error
            yield out
