"""Keeps beside the farm's keys what was revoked, so that a restored backup lets nobody in again."""

from datetime import datetime
from pathlib import Path
from typing import Final

from agent.wire.private_folder import FILE_MODE, FOLDER_MODE
from orchestrator.db.devices import credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError
from runtime.common.durable import write_atomically

FILE: Final = "revoked"
"""Name of the file: the ids of keys and tokens that are over, one a line. An id lets nobody in."""


def known(keys: Path) -> set[str]:
    """Return the ids that the file lists. Raises `FarmError` where it cannot be read."""
    path = keys / FILE
    try:
        return set(path.read_text().split()) if path.exists() else set()
    except OSError as error:
        raise _unusable(path, error) from error


def reconcile(database: Database, keys: Path, now: datetime) -> list[str]:
    """Add to the file what the database says is over, and end in the database what only the file says.

    `keys`: the folder of the farm's keys. Return whose credentials a backup had made valid again, as
    `user ana` or `agent rack-1`. Raises `FarmError`, `UnreachableError`.
    """
    path, listed = keys / FILE, known(keys)
    with database.read() as session:
        over, valid = credentials.over(session, now), credentials.owners(session, now)
    try:
        # It only grows, and is written where something is new.
        if not over <= listed:
            keys.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_atomically(path, "\n".join(sorted(listed | over)).encode(), FILE_MODE)
    except OSError as error:
        raise _unusable(path, error) from error
    again = listed & valid.keys()
    if again:
        with database.write() as turn:
            credentials.end(turn, again, now)
    return sorted({valid[name] for name in again})


def _unusable(path: Path, error: OSError) -> FarmError:
    return FarmError(f"{path}, the list of what was revoked, cannot be used: {error.strerror}")
