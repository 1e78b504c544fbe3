"""Reads a request's body in a worker thread, and checks the size that its header announces."""

import errno
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import from_thread
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

STALL_LIMIT_S: Final = 30.0
"""Seconds without a byte after which a sender is cut off. Chosen: a lossy link recovers within it, and a
sender that stopped holds its thread no longer.
"""


@dataclass(slots=True)
class Body:
    """A request's body, read by a worker thread."""

    stream: AsyncIterator[bytes]
    _rest: bytes = b""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty at the end. Raises `OSError` where the sender stalls."""
        if not self._rest:
            self._rest = from_thread.run(self._next)
        block, self._rest = self._rest[:size], self._rest[size:]
        return block

    async def drop(self, most: int) -> None:
        """Read and drop the rest, `most` bytes at most: a sender that is cut off may never see the answer."""
        with suppress(OSError, ClientDisconnect):
            while most > 0 and (block := await self._next()):
                most -= len(block)

    async def _next(self) -> bytes:
        try:
            with anyio.fail_after(STALL_LIMIT_S):
                async for chunk in self.stream:
                    # Starlette ends a stream with an empty chunk.
                    if chunk:
                        return chunk
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "the sender stopped sending") from error
        return b""


def announced(request: Request, limit: int, setting: str) -> int:
    """Return the request's content length in bytes; 0 without one. Raises `HTTPException` 400, 413."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal():
        raise HTTPException(400, f"content-length {length!r} is not a number")
    if int(length) > limit:
        raise HTTPException(413, f"{length} bytes; the limit of the farm is {limit} ({setting})")
    return int(length)


async def whole(request: Request, limit: int) -> bytes:
    """Return the body of a request of at most `limit` bytes. Raises `HTTPException` 413."""
    body = bytearray()
    async for chunk in request.stream():
        # A body in chunks announces no length, so what has arrived is counted.
        body += chunk
        if len(body) > limit:
            raise HTTPException(413, f"the body is larger than {limit} bytes")
    return bytes(body)
