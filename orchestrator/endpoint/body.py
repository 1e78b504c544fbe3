"""A request's body as a worker thread reads it, and what it says of its size before."""

from __future__ import annotations

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
"""A sender that says nothing for so long is cut off."""


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
        """Read on, up to a limit: a sender that is cut off in the middle may never see the answer."""
        with suppress(OSError, ClientDisconnect):
            while most > 0 and (block := await self._next()):
                most -= len(block)

    async def _next(self) -> bytes:
        try:
            with anyio.fail_after(STALL_LIMIT_S):
                async for chunk in self.stream:
                    if chunk:
                        return chunk
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, "the sender said nothing more") from error
        return b""


def announced(request: Request, limit: int, setting: str) -> int:
    """How many bytes a request says it brings; 0: it does not say. Raises `HTTPException` 400, 413."""
    said = request.headers.get("content-length", "0")
    if not said.isdecimal():
        raise HTTPException(400, f"content-length {said!r} is no number")
    if int(said) > limit:
        raise HTTPException(413, f"{said} bytes; the limit of the farm is {limit} ({setting})")
    return int(said)
