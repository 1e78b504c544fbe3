"""Content-addressed files: a model is verified before it is used, samples are stored by their hash."""

import errno
import hashlib
import os
from pathlib import Path
from typing import Final

from agent.processes.left_files import open_left
from agent.wire.messages import artifact_path
from runtime.common.durable import replacing

_BLOCK_BYTES: Final = 1 << 20
"""Bytes copied and hashed at once. Larger costs memory, smaller more system calls."""


class ArtifactError(Exception):
    """A file is missing from the store or does not hash to its name; the text says which and why."""


def verified_file(store: Path, sha256: str, size: int, what: str = "model") -> Path:
    """Return the path of a file, once its bytes hash to its name. `what` names the kind of file in messages.

    Raises `ArtifactError`; `OSError` where this process can open no file at all.
    """
    path = artifact_path(store, sha256)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        # No fault of the file: the agent ends with this error, and no cell is blamed for it.
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
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
    copy_verified(source, target, sha256, store)


def copy_verified(source: Path, target: Path, sha256: str, top: Path | None = None) -> None:
    """Copy `source`, whose bytes must hash to `sha256`, so that `target` holds all of it or does not change.

    `top`: the highest folder that may be new. Raises as `put_artifact`.
    """
    digest = hashlib.sha256()
    with open_left(source) as reader, replacing(target, top=top) as writer:
        while block := reader.read(_BLOCK_BYTES):
            # Of the very bytes that are written: a runner that lives on
            # could change its file between two readings.
            digest.update(block)
            writer.write(block)
        # Within the block: `replacing` leaves the target as it was where the block ends with an error.
        if digest.hexdigest() != sha256:
            raise ArtifactError(
                f"{source.name}: expected {sha256[:12]}, its bytes hash to {digest.hexdigest()[:12]}"
            )
