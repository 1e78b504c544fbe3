"""Files of a device's cache: whole or absent, whoever else reads and writes them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class ProgramCache:
    """Driver binaries on disk, by a hash of source, options, device and driver; without a folder, nothing.

    PoCL keeps the kernels that it compiles by itself (`POCL_CACHE_DIR`); asked for a program's binary, it
    would compile every kernel a second time. `build_program` therefore leaves PoCL alone.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def path(self, key: str) -> Path | None:
        """Where the binary of `key` lies."""
        return None if self._folder is None else self._folder / "programs" / f"{key}.bin"

    def read(self, key: str) -> bytes | None:
        """The binary of `key`, or None."""
        path = self.path(key)
        try:
            return path.read_bytes() if path is not None else None
        except OSError:
            return None

    def write(self, key: str, binary: bytes) -> None:
        """Keep a binary; readers see all of it or nothing."""
        path = self.path(key)
        if path is not None:
            write_atomically(path, binary)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, then rename, so that other processes see all of the content or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
