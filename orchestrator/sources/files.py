"""Stores local files: a `.tflite` unchanged, a `.skel` restored, a folder of labelled pictures as a tar.

A file is opened once, and every check is of what was opened: nothing can take its place in between. Of a
folder nothing is taken but pictures and the files that say what is on them: a campaign file may name any
folder that its submitter can read.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.config.home import KERNEL_FILESYSTEMS, filesystem_of_device
from orchestrator.errors import UsageError
from orchestrator.sources.content import TRUTHS, Requirement, require_labelled_data
from orchestrator.sources.pypi import recall, remember
from orchestrator.sources.store import Store, StoredFile, too_large, wrong_hash
from runtime.model.signatures import signature_file
from runtime.model.skeleton import is_skeleton, restore_skeleton

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
                # A link may have taken its place since `lstat`.
                descriptor = os.open(self._path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                raise UsageError(f"{self._path / name}: cannot be read: {error.strerror}") from error
            with os.fdopen(descriptor, "rb") as file:
                member = tarfile.TarInfo(name)
                # The header goes first: of a file that grows meanwhile, the rest is left out.
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
        # Two empty blocks end a tar (POSIX.1-1988).
        yield bytes(2 * _BLOCK)


def _names(path: Path) -> Iterator[str]:
    """Yield what is taken of a folder and of those in it, by the names that its tar has."""
    # `walk` follows no link to a folder: nothing of what lies behind one is taken.
    for at, _, names in os.walk(path):
        inner = os.path.relpath(at, path)
        for name in names:
            if name.lower().endswith(_TAKEN):
                yield name if inner == "." else f"{inner}/{name}"
            elif inner == "." and (name in TRUTHS or name == _LABELS):
                yield name


SKELETON_SUFFIX = ".skel"
MAX_SKELETON_BYTES = 256 * 1024**2
"""A larger skeleton is refused: it is restored in memory, and describes weights in far fewer bytes than
this.
"""

_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def open_source(path: Path, most_bytes: int) -> Iterator[tuple[io.BufferedReader, str]]:
    """Open a user's regular file; also yield its name for messages, which tells where a link leads.

    Raises `UsageError` for a folder, pipe, socket or device, for a file of the kernel's, for one that cannot
    be read, and for one that is larger than `most_bytes`.
    """
    shown = _shown(path)
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UsageError(f"{shown}: no such file") from None
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from error
    try:
        _require_users_file(os.fstat(descriptor), shown, most_bytes)
    except UsageError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield file, shown


def check_file(path: Path, require: Requirement, expected_sha256: str | None, most_bytes: int) -> None:
    """Raise `UsageError` unless this file can be stored as it is: its kind, size, content and hash."""
    if path.suffix == SKELETON_SUFFIX:
        _read_skeleton(path)
        return
    if require is require_labelled_data and path.is_dir():
        PackedFolder(path, most_bytes)  # a pinned hash is that of the tar, and checked as it is made
        return
    with open_source(path, most_bytes) as (file, shown):
        require(file, shown)
        if expected_sha256 is not None:
            file.seek(0)
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected_sha256:
                raise wrong_hash(shown, expected_sha256, found)


def store_file(path: Path, store: Store, expected_sha256: str | None, require: Requirement) -> StoredFile:
    """Copy a local file into the store, or a folder of labelled pictures as a tar."""
    if require is require_labelled_data and path.is_dir():
        return store.put(PackedFolder(path, store.max_bytes), str(path), expected_sha256, require)
    with open_source(path, store.max_bytes) as (file, shown):
        # Before the copy, which may take long; the store checks the copy itself.
        require(file, shown)
        file.seek(0)
        return store.put(file, shown, expected_sha256, require)


def store_skeleton(path: Path, store: Store, expected_sha256: str | None, require: Requirement) -> StoredFile:
    """Restore a skeleton into the store. Raises `UsageError` if that fails or the sha256 differs."""
    content, shown = _read_skeleton(path)
    # Restoring takes seconds for a large model; the same skeleton gives the same bytes every time.
    key = f"skel:{hashlib.sha256(content).hexdigest()}"
    known = recall(store, key)
    # Where another hash is pinned, it is restored all the same, and refused with both hashes.
    if known is not None and expected_sha256 in (None, known.sha256):
        return known
    try:
        model = restore_skeleton(content)
    except ValueError as error:
        raise UsageError(f"{shown}: not a skeleton that can be restored: {error}") from error
    found = store.put(io.BytesIO(model), shown, expected_sha256, require)
    remember(store, key, found)
    return found


def store_signature(store: Store, file: StoredFile, key: str, shown: str) -> StoredFile:
    """Store the model whose first graph is that of a signature of `file`.

    Raises `UsageError` for an unknown signature, and for a file that the reader refuses.
    """
    try:
        content = signature_file(store.path(file.sha256).read_bytes(), key)
    except ValueError as error:
        raise UsageError(f"{shown}: signature {key!r}: {error}") from error
    return store.put(io.BytesIO(content), shown)


def _read_skeleton(path: Path) -> tuple[bytes, str]:
    with open_source(path, MAX_SKELETON_BYTES) as (file, shown):
        content = file.read(MAX_SKELETON_BYTES)
    if not is_skeleton(content):
        raise UsageError(f"{shown}: not a skeleton; make one with: farm model skeleton strip MODEL FILE.skel")
    return content, shown


def _require_users_file(status: os.stat_result, shown: str, most_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "something else")
        raise UsageError(f"{shown}: not a file but {kind}; a source is a regular file")
    kind = filesystem_of_device(status.st_dev)
    if kind in KERNEL_FILESYSTEMS:
        raise UsageError(
            f"{shown}: lies in {kind}, a file system of the kernel; a source is a file of yours on a disk"
        )
    if status.st_size > most_bytes:
        raise too_large(shown, most_bytes, status.st_size)


def _shown(path: Path) -> str:
    """Return the path as it was given; if links lead elsewhere, with the file that they lead to."""
    try:
        linked = any(part.is_symlink() for part in (path, *path.parents))
        return f"{path} (a link to {path.resolve()})" if linked else str(path)
    except (OSError, RuntimeError):
        # A loop of links, or a folder that this user cannot look into.
        return str(path)
