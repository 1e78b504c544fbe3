"""Stores local files: a `.tflite` unchanged, a `.skel` after restoring it."""

from __future__ import annotations

import hashlib
import io
import stat
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.sources.index import recall, remember
from orchestrator.sources.store import Store, StoredFile
from runtime.model.skeleton import restore_skeleton

SKELETON_SUFFIX = ".skel"
MAX_SKELETON_BYTES = 256 * 1024**2
"""A larger skeleton is refused: it is restored in memory, and describes weights in far fewer bytes than
this.
"""


def check_file(path: Path) -> None:
    """Raise `UsageError` unless this is a regular file that can be read."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path}: not a file{' but a folder' if stat.S_ISDIR(mode) else ''}")
        path.open("rb").close()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error


def sha256_of(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def store_file(path: Path, store: Store, expected_sha256: str | None) -> StoredFile:
    """Copy a model file into the store."""
    check_file(path)
    with path.open("rb") as stream:
        return store.put(stream, str(path), expected_sha256)


def store_skeleton(path: Path, store: Store, expected_sha256: str | None) -> StoredFile:
    """Restore a skeleton into the store. Raises `UsageError` if that fails or the sha256 differs."""
    check_file(path)
    if path.stat().st_size > MAX_SKELETON_BYTES:
        raise UsageError(f"{path}: larger than {MAX_SKELETON_BYTES} bytes, the limit of a skeleton")
    # Restoring takes seconds for a large model; the same skeleton gives the same bytes every time.
    key = f"skel:{sha256_of(path)}"
    known = recall(store, key)
    if known is not None and expected_sha256 in (None, known.sha256):
        return known
    try:
        model = restore_skeleton(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"{path}: not a skeleton that can be restored: {error}") from error
    found = store.put(io.BytesIO(model), str(path), expected_sha256)
    remember(store, key, found)
    return found
