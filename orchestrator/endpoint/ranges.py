"""Parses `Range: bytes=...` of a request: one range, with which a client resumes a broken transfer."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """Return the part of a file of `size` bytes that a `Range` header requests; None: the whole file.

    A header of another form, or with several ranges, asks for the whole file, as RFC 9110 (14.2) allows.
    Raises `OutOfRangeError`.
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        start, end = max(0, size - int(found[2])), size
    else:
        start = int(found[1])
        end = min(size, int(found[2]) + 1) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    if start >= size:
        raise OutOfRangeError(f"byte {start} of {size}")
    return Part(start, end)
