"""Packs a folder of labelled pictures into a plain tar, as which it is stored and sent.

Of a folder nothing is taken but pictures and the files that say what is on them: a campaign file may name
any folder that its submitter can read.
"""

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.sources.content import TRUTHS
from orchestrator.sources.store import too_large

_TAKEN: Final = (".jpg", ".jpeg", ".png")
_LABELS: Final = "labels.txt"
_BLOCK: Final = 512
"""Bytes of a tar's block (POSIX.1-1988)."""

_CHUNK_BYTES: Final = 1 << 20
"""Bytes of a picture that are held at once. Larger costs memory, smaller more system calls."""


class PackedFolder:
    """The bytes of the tar, made as they are read: equal files give equal bytes, whatever their times are."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Raise `UsageError` for a folder without a truth, with links, or that is too large."""
        self._path = path
        self._names = sorted(_names(path))
        if TRUTHS.isdisjoint(self._names):
            wanted = " or ".join(sorted(TRUTHS))
            raise UsageError(f"{path}: a folder of pictures has {wanted}; this has neither")
        size = 0
        for name in self._names:
            found = (path / name).lstat()
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{path / name}: no regular file; put a copy of the picture there")
            size += found.st_size
        if size > most_bytes:
            raise too_large(str(path), most_bytes, size)
        self._blocks = self._packed()

    def read(self, _size: int, /) -> bytes:
        """Return the next bytes, of any number; none at the end. Raises `UsageError`."""
        return next(self._blocks, b"")

    def _packed(self) -> Iterator[bytes]:
        for name in self._names:
            try:
                descriptor = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                raise UsageError(f"{self._path / name}: cannot be read: {error.strerror}") from error
            with os.fdopen(descriptor, "rb") as file:
                member = tarfile.TarInfo(name)
                member.size = left = os.fstat(descriptor).st_size
                yield member.tobuf(tarfile.PAX_FORMAT)
                while left:
                    chunk = file.read(min(left, _CHUNK_BYTES))
                    if not chunk:
                        raise UsageError(f"{self._path / name}: became shorter while it was read")
                    left -= len(chunk)
                    yield chunk
            if rest := member.size % _BLOCK:
                yield bytes(_BLOCK - rest)
        yield bytes(2 * _BLOCK)


def _names(path: Path) -> Iterator[str]:
    """Yield what is taken of a folder and of those in it, by the names that its tar has."""
    for at, _, names in os.walk(path):
        inner = os.path.relpath(at, path)
        for name in names:
            if name.lower().endswith(_TAKEN):
                yield name if inner == "." else f"{inner}/{name}"
            elif inner == "." and (name in TRUTHS or name == _LABELS):
                yield name
