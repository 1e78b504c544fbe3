"""Copies the database to a new file."""

from __future__ import annotations

from pathlib import Path

from agent.wire.private_folder import FILE_MODE
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError


def backup(database: Database, target: Path) -> int:
    """Copy the database to a new file that only this user may read; returns its size in bytes.

    Raises `FarmError` where the file exists or cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise FarmError(f"{target} exists already; a backup overwrites nothing")
    # Written beside the target and renamed at the end: an incomplete backup never looks like a complete one.
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        part.touch(FILE_MODE)
        database.backup(part)
        part.rename(target)
        return target.stat().st_size
    except OSError as error:
        raise FarmError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
