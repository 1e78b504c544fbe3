"""Puts a finished site in place in one step: a reader sees the old site or the new one, never a mixture.

The new folder is written beside the old one and exchanged with it in one system call (Linux, renameat2).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import FarmError, UsageError

_AT_FDCWD = -100
"""Linux (fcntl.h): relative paths start at the working folder, as they do for rename."""

_RENAME_EXCHANGE = 2
"""Linux (fs.h), a flag of renameat2: both paths exist and change places in one step. Between two renames a
reader would meet no site at all."""


@contextmanager
def replaced_folder(target: Path, marker: str) -> Iterator[Path]:
    """A new, empty folder to fill; on leaving without an error it takes the place of `target`.

    One build at a time: a second one waits. Leftovers of killed builds are removed. `marker` is the path
    of a file inside that identifies a folder of this kind: any other folder that is not empty is refused.
    Raises `UsageError` for such a folder and for a file.
    """
    _require_replaceable(target, marker)
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.building-"
    # Under the lock no other build runs, so a folder with the prefix was left behind by one that was killed.
    with _held(target.parent / f".{target.name}.lock"):
        for left_over in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(left_over)
        fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            # mkdtemp makes it for its owner alone; a web server runs as another user.
            fresh.chmod(0o755)
            yield fresh
            _put_in_place(fresh, target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _require_replaceable(target: Path, marker: str) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise UsageError(f"{target} is a file; the site needs a folder")
    if any(target.iterdir()) and not (target / marker).is_file():
        raise UsageError(
            f"{target} is not empty and holds no site ({marker} is missing); name a new or an empty folder"
        )


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename, or exchange the two folders where there is an old one."""
    if not target.exists():
        fresh.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(target), _RENAME_EXCHANGE) != 0:
        cause = os.strerror(ctypes.get_errno())
        raise FarmError(
            f"{target}: its file system cannot exchange two folders ({cause}); "
            "remove the old site, or name a new folder"
        )
