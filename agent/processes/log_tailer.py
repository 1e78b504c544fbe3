"""What a runner writes while it runs, in small pieces: limited in rate and size."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 4096
"""The longest piece; of more that came at once only the end is told."""

PAUSE_S: Final = 2.0
"""Between two pieces of one attempt."""

_Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that follows `start` characters which were told, or left out, before."""

    start: int
    text: str


@dataclass(slots=True)
class OutputReader:
    """Reads a log that grows. Bytes that are no text become U+FFFD; what is left out counts as characters."""

    path: Path
    _read: int = 0
    _told: int = 0
    _due_s: float = 0.0
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: _Decoder("replace"))

    def piece(self, now_s: float) -> Piece | None:
        """What is new; None where nothing is, or where it is too early to tell."""
        if now_s < self._due_s:
            return None
        try:
            new = self._new_bytes()
        except OSError:
            return None
        text = self._decoder.decode(new).replace("\0", "\N{REPLACEMENT CHARACTER}")
        if not text:
            return None
        piece = Piece(self._told, text)
        self._told += len(text)
        self._due_s = now_s + PAUSE_S
        return piece

    def _new_bytes(self) -> bytes:
        with self.path.open("rb") as file:
            size = file.seek(0, 2)
            left_out = max(0, size - self._read - PIECE_BYTES)
            if left_out:
                self._decoder.reset()
                self._read += left_out
                self._told += left_out
            file.seek(self._read)
            new = file.read(PIECE_BYTES)
        self._read += len(new)
        return new
