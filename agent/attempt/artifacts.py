"""Content-addressed files: a model is verified before it is used, samples are stored by their hash."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from agent.processes.left_files import open_left
from agent.wire.messages import artifact_path

_BLOCK_BYTES: Final = 1 << 20
"""Bytes copied and hashed at once. Larger costs memory, smaller more system calls."""


class ArtifactError(Exception):
    """A file is missing from the store or does not hash to its name; the text says which and why."""


def verified_file(store: Path, sha256: str, size: int, what: str = "model") -> Path:
    """Return the path of a file, once its bytes hash to its name. `what` names the kind of file in messages.

    Raises `ArtifactError`.
    """
    path = artifact_path(store, sha256)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ArtifactError(f"{what} {sha256[:12]} is not in the store ({path}): {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        found_size = os.fstat(file.fileno()).st_size
        if found_size != size:
            raise ArtifactError(f"{what} {sha256[:12]} has {found_size} bytes in the store, expected {size}")
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise ArtifactError(f"{what} {sha256[:12]} is damaged in the store: its bytes hash to {digest[:12]}")
    return path


def put_artifact(store: Path, source: Path, sha256: str) -> None:
    """Copy `source`, which a runner left, into the store under its hash.

    Raises `OSError`, also where it is no regular file, or `ArtifactError` for other bytes.
    """
    target = artifact_path(store, sha256)
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_verified(source, target, sha256)
    _sync_folders(target.parent, store)


def copy_verified(source: Path, target: Path, sha256: str) -> None:
    """Copy `source`, whose bytes must hash to `sha256`, so that `target` holds all of it or does not change.

    Raises as `put_artifact`.
    """
    temporary = target.with_name(f".{sha256}.{os.getpid()}.tmp")
    digest = hashlib.sha256()
    try:
        with open_left(source) as reader, temporary.open("xb") as writer:
            while block := reader.read(_BLOCK_BYTES):
                digest.update(block)
                writer.write(block)
            # Synchronised before the rename: after a power cut no name may refer to missing bytes.
            writer.flush()
            os.fsync(writer.fileno())
        if digest.hexdigest() != sha256:
            raise ArtifactError(
                f"{source.name}: expected {sha256[:12]}, its bytes hash to {digest.hexdigest()[:12]}"
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folders(folder: Path, store: Path) -> None:
    """Write the folders from `folder` up to `store` to the disk: each of them may be new."""
    # A file's own fsync does not write its name: a rename survives a power cut only with its folder.
    for path in (folder, *folder.parents):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == store:
            break
