"""Puts a finished site in place in one step: a reader sees the old site or the new one, never a mixture.

The new folder is written beside the old one and exchanged with it in one system call (Linux, renameat2).
"""

import ctypes
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import FarmError, UsageError
from runtime.common.durable import open_lock

_AT_FDCWD = -100
"""Linux (fcntl.h): relative paths start at the working folder, as they do for rename."""

_RENAME_EXCHANGE = 2
"""Linux (fs.h), a flag of renameat2, and macOS (RENAME_SWAP of renamex_np(2)): both paths exist and change
places in one step. Between two renames a reader would meet no site at all."""

_FOLDER_MODE = 0o755
"""Mode of every folder of a site: a web server, which runs as another user, enters it."""

_FILE_MODE = 0o644
"""Mode of every file of a site: a web server reads it."""


@contextmanager
def replaced_folder(target: Path, marker: str) -> Iterator[Path]:
    """Yield a new, empty folder to fill; on leaving without an error it takes the place of `target`.

    One build at a time: a second one waits. Leftovers of killed builds are removed. `marker` is the path
    of a file inside that identifies a folder of this kind: any other folder that is not empty is refused.
    Raises `UsageError` for such a folder and for a file.
    """
    _require_replaceable(target, marker)
    _make_public(target.parent)
    prefix = f".{target.name}.building-"
    # Under the lock no other build runs, so a folder with the prefix was left behind by one that was killed.
    # The lock lies beside the folder: one within it would be exchanged, too.
    with open_lock(target.parent / f".{target.name}.lock", wait_s=math.inf):
        for left_over in target.parent.glob(f"{prefix}*"):
            shutil.rmtree(left_over)
        fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
        try:
            yield fresh
            _open_to_all(fresh)
            _put_in_place(fresh, target)
        finally:
            # After an exchange this path is the old site.
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


def _make_public(folder: Path) -> None:
    """Make a folder and what is missing above it, for everybody to read, whatever this process's umask."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(_FOLDER_MODE)


def _open_to_all(site: Path) -> None:
    """Let everybody read a finished site: all else that a farm writes is its user's alone."""
    for folder, _, files in os.walk(site):
        Path(folder).chmod(_FOLDER_MODE)
        for name in files:
            Path(folder, name).chmod(_FILE_MODE)


def _put_in_place(fresh: Path, target: Path) -> None:
    """Rename, or exchange the two folders where there is an old one."""
    if not target.exists():
        fresh.rename(target)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(fresh), os.fsencode(target)
    if sys.platform == "darwin":
        failed = libc.renamex_np(*names, _RENAME_EXCHANGE)
    else:
        failed = libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if failed:
        cause = os.strerror(ctypes.get_errno())
        raise FarmError(
            f"{target}: its file system cannot exchange two folders ({cause}); "
            "remove the old site, or name a new folder"
        )
