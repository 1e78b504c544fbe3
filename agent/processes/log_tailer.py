"""The output of a runner while it runs, in small pieces: limited in rate and size."""

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.processes.left_files import open_left

PIECE_BYTES: Final = 4096
"""Longest piece in bytes; of more output that came at once only the end is sent. With `PAUSE_S` it bounds the
traffic of an attempt to 2 KiB/s; a piece must also stay below the 8192 characters of `RunnerOutput`."""

PAUSE_S: Final = 2.0
"""Seconds between two pieces of one attempt: how late a line of output is sent, at most."""

_Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that follows `start` characters which were sent, or left out, before."""

    start: int
    text: str


@dataclass(slots=True)
class OutputReader:
    """Reads a log that grows. Invalid UTF-8 becomes U+FFFD; bytes that are left out count as characters."""

    path: Path
    _read: int = 0
    _sent: int = 0
    _due_s: float = 0.0
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Decoder("replace"))

    def piece(self, now_s: float) -> Piece | None:
        """Return what is new; None where nothing is, or where the last piece is too recent."""
        if now_s < self._due_s:
            return None
        try:
            new = self._new_bytes()
        except OSError:
            return None
        text = self._decoder.decode(new).replace("\0", "\N{REPLACEMENT CHARACTER}")
        if not text:
            return None
        piece = Piece(self._sent, text)
        self._sent += len(text)
        self._due_s = now_s + PAUSE_S
        return piece

    def _new_bytes(self) -> bytes:
        with open_left(self.path) as file:
            size = file.seek(0, 2)
            left_out = max(0, size - self._read - PIECE_BYTES)
            if left_out:
                # What is left out may begin, or end, in the middle of a character.
                self._decoder.reset()
                self._read += left_out
                self._sent += left_out
            file.seek(self._read)
            new = file.read(PIECE_BYTES)
        self._read += len(new)
        return new
