"""Keeps a farm's or an agent's files for its user alone: models, results, journals, databases, logs.

The modes stand here once, for both floors. What others are meant to read is opened where it is made: the
built site and the locks of devices.
"""

import logging
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER_MODE: Final = 0o700
"""Mode of every folder under a farm's home and an agent's state folder: its user alone enters it."""
FILE_MODE: Final = 0o600
"""Mode of every file there but artifacts: its user alone reads and writes it."""
ARTIFACT_MODE: Final = 0o400
"""Mode of a file in the content-addressed store. Nobody writes it: its name is the hash of its bytes, and
other processes have it mapped."""
_OF_OTHERS: Final = 0o077
"""Mode bits that let the group or others use a file or folder."""
_WRITTEN_BY_OTHERS: Final = 0o022
"""Mode bits that let the group or others change a file or folder."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exposure:
    """Why a folder cannot hold private files: others own it, or may have changed what it holds."""

    found: str
    fix: str


class ExposedError(ValueError):
    """A folder cannot hold private files; the text says why and what to do."""


def keep_new_files_private() -> None:
    """Create the files of this process and its children for this user alone, from the first moment."""
    os.umask(_OF_OTHERS)


def private_folder(folder: Path) -> None:
    """Make a folder for this user alone. What lies in one that others could read is closed to them, with a
    line in the log. Raises `ExposedError` where others own it or could write in it, else `OSError`.
    """
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    exposure = exposure_of(folder)
    if exposure is not None:
        raise ExposedError(f"{exposure.found}; {exposure.fix}")
    if stat.S_IMODE(folder.stat().st_mode) & _OF_OTHERS:
        count = _close(folder)
        log.warning("%s could be read by others; it and %d entries in it are now private", folder, count)


def exposure_of(folder: Path) -> Exposure | None:
    """Return why a folder must not be used; None where it is private or can be. Raises `OSError`."""
    found = folder.stat()
    if found.st_uid != os.geteuid():
        owner = _name_of(found.st_uid)
        return Exposure(f"{folder} belongs to {owner}", f"run this as {owner}, or name another folder")
    mode = stat.S_IMODE(found.st_mode)
    # An empty one holds nothing that others could have changed; `private_folder` closes it.
    if mode & _WRITTEN_BY_OTHERS and any(folder.iterdir()):
        return Exposure(
            f"others can write in {folder} (mode {mode:o}) and may have changed what it holds",
            f"look through it, then: chmod -R go-rwx {folder}",
        )
    return None


def _close(root: Path) -> int:
    """Take the rights of others from a folder and everything below it; returns how many entries had some."""
    count = 0
    for folder, folders, files in os.walk(root):
        count += sum(_close_one(Path(folder, name)) for name in (*folders, *files))
    # Last, so that an interrupted walk is done again: the root's mode tells that all of it is private.
    _close_one(root)
    return count


def _close_one(path: Path) -> bool:
    try:
        found = path.lstat()
        mode = stat.S_IMODE(found.st_mode)
        # chmod would follow a link, out of the folder.
        if stat.S_ISLNK(found.st_mode) or not mode & _OF_OTHERS:
            return False
        path.chmod(mode & ~_OF_OTHERS)
    except FileNotFoundError:
        return False
    return True


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
