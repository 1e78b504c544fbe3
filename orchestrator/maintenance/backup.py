"""Copies the database to a new file."""

from __future__ import annotations

from pathlib import Path

from agent.wire.private_folder import FILE_MODE
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError
from runtime.common.durable import replacing


def backup(database: Database, target: Path) -> int:
    """Copy the database to a new file that only this user may read; returns its size in bytes.

    Raises `FarmError` where the file exists or cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise FarmError(f"{target} exists already; a backup overwrites nothing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target, FILE_MODE) as draft:
            database.backup(Path(draft.name))
        return target.stat().st_size
    except OSError as error:
        raise FarmError(f"{target} cannot be written: {error.strerror}") from error
