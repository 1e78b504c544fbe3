"""Fingerprint of this package's source files; cached results are valid while it is unchanged."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final


@cache
def own_digest() -> str:
    """Hash the delegate's own files: kernels, and the code that chooses and calls them."""
    folder = Path(__file__).parent.parent
    found = hashlib.sha256()
    for file in sorted((*folder.rglob("*.py"), *folder.rglob("*.cl"))):
        found.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return found.hexdigest()


_OTHERS: Final = ("model", "ops", "plan")
"""Packages of the runtime, besides the delegate's own, that decide what becomes of a partition: they read the
file, infer its shapes, and compute its constants and tables."""

_ENDINGS: Final = (".py", ".cl")


@cache
def own_state() -> str:
    """Return a hash of the names, sizes and times of all files that decide what becomes of a partition.

    It reads none of them, and so takes a start a few milliseconds.
    """
    own = Path(__file__).parent.parent
    folders = (own, *(own.parent.parent / name for name in _OTHERS))
    found = sorted(state for folder in folders for state in _states(os.fspath(folder)))
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _states(entry.path)
            elif entry.name.endswith(_ENDINGS):
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns
