"""Keeps beside the farm's keys what was revoked, so that a restored backup lets nobody in again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from agent.wire.private_folder import FILE_MODE, FOLDER_MODE
from orchestrator.db.devices import credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError
from runtime.common.durable import write_atomically

FILE: Final = "revoked"
"""Name of the file: the ids of keys and of users' tokens that are over, one a line. An id lets nobody in."""


def reconcile(database: Database, keys: Path, now: datetime) -> list[str]:
    """Add to the file what the database says is over, and end in the database what only the file says.

    `keys`: the folder of the farm's keys. Return whose credentials a backup had made valid again, as
    `user ana` or `agent rack-1`. Raises `FarmError`, `UnreachableError`.
    """
    path = keys / FILE
    try:
        known = set(path.read_text().split()) if path.exists() else set()
        with database.read() as session:
            over, valid = credentials.over(session, now), credentials.owners(session, now)
        if not over <= known:
            keys.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_atomically(path, "\n".join(sorted(known | over)).encode(), FILE_MODE)
    except OSError as error:
        raise FarmError(f"{path}, the list of what was revoked, cannot be used: {error.strerror}") from error
    again = known & valid.keys()
    if again:
        with database.write() as turn:
            credentials.end(turn, again, now)
    return sorted({valid[name] for name in again})
