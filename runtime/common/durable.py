"""Replace a file in one step, make one that others may make at the same time, and lock one.

A file is written beside its place, under a name that nobody else has, and renamed: readers find all of the
former contents or all of the new. After an error nothing of it is left; `is_draft` recognises what a killed
process leaves.
"""

import fcntl
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

_ANY_MODE: Final = 0o666
"""Mode of a new file for which none is named; the process's umask takes bits from it, as with `open`."""

_PRIVATE_MODE: Final = 0o600
"""Mode of a lock's file, and of one with a mode of its own before it has that: its user alone opens it."""

_POLL_S: Final = 0.1
"""Seconds between two tries for a lock: nothing tells that it is free. Smaller costs more system calls."""


@contextmanager
def replacing(
    path: Path, mode: int | None = None, *, sync: bool = True, top: Path | None = None
) -> Iterator[BinaryIO]:
    """Open a new file, which takes the place of `path` where the block ends without an error.

    `mode` holds whatever the umask; None leaves it to the umask. The contents are on the disk before the name
    is, and the name before this returns, with those of the folders up to `top`, which may be new. Without
    `sync` a power cut may leave an empty or a partial file: for what is checked when it is read, and can be
    made again. Raises `OSError`, and then `path` is as it was.
    """
    with _draft(path, mode) as file:
        yield file
        file.flush()
        if sync:
            os.fsync(file.fileno())
        # Closed before the rename: a file system over a network may report a full disk only here.
        file.close()
        Path(file.name).replace(path)
        if sync:
            _sync_folders(path.parent, top or path.parent)


def write_atomically(path: Path, data: bytes, mode: int | None = None, *, sync: bool = True) -> None:
    """Write `data` so that `path` holds all of it or does not change. Options and errors as `replacing`."""
    with replacing(path, mode, sync=sync) as file:
        file.write(data)


def put_in_place(source: Path, path: Path, top: Path | None = None) -> None:
    """Write a file to the disk and then rename it, so that contents and name survive a power cut.

    `top`: the highest folder whose contents may be new; None: the file's own. Raises `OSError`.
    """
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(path)
    _sync_folders(path.parent, top or path.parent)


def create_once(path: Path, data: bytes, mode: int, *, sync: bool = True) -> None:
    """Make a file, unless it exists: of processes that make it at once, one wins. `sync` as for `replacing`.

    Raises `OSError`.
    """
    with _draft(path, mode) as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        # A link, not a rename: it never replaces the file of another process.
        with suppress(FileExistsError):
            path.hardlink_to(file.name)
        if sync:
            _sync_folders(path.parent, path.parent)


def is_draft(path: Path) -> bool:
    """Whether a file is, by its name, one that is being written, or that a killed process has left."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def open_lock(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> BinaryIO:
    """Open a file, made where it is missing, and lock it until it is closed, as `lock_file` does.

    The kernel frees the lock however this process dies, and no child inherits it. Raises `OSError`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_MODE)
    file = os.fdopen(descriptor, "r+b", buffering=0)
    try:
        lock_file(descriptor, shared=shared, wait_s=wait_s)
    except BaseException:
        file.close()
        raise
    return file


def lock_file(descriptor: int, *, shared: bool = False, wait_s: float = 0.0) -> None:
    """Lock an open file (flock), alone or `shared` with others that share it; closing it frees the lock.

    Raises `BlockingIOError` where another one still has it after `wait_s`; infinity waits without end.
    """
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if wait_s == math.inf:
        fcntl.flock(descriptor, how)
        return
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(_POLL_S)


@contextmanager
def _draft(path: Path, mode: int | None) -> Iterator[BinaryIO]:
    """Open a new file beside `path`, and remove it at the end of the block where it still has its name."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    first_mode = _ANY_MODE if mode is None else _PRIVATE_MODE & mode
    try:
        with open(draft, "x+b", opener=lambda name, flags: os.open(name, flags, first_mode)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
    finally:
        draft.unlink(missing_ok=True)


def _sync_folders(folder: Path, top: Path) -> None:
    """Write the entries of the folders from `folder` up to `top` to the disk."""
    for path in (folder, *folder.parents):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == top:
            break
