"""Ensures one scheduler per farm, by locks that the kernel or the database frees when their holder dies."""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.db.engine.locks import AdvisoryLock
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UnreachableError
from runtime.common.durable import lock_file, open_lock

_LOOK_S: Final = 1.0
"""Seconds to wait for those who only look, and share the lock for a moment (`lock_holder`)."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that schedules. `since_at`: UTC seconds; `campaign_no`: the campaign it waits for."""

    pid: int
    since_at: float
    campaign_no: int | None = None


@dataclass(slots=True)
class SchedulerLock:
    """A held lock. Leaving the `with` block frees it. `since_at`: UTC seconds."""

    file: BinaryIO
    advisory: AdvisoryLock | None = None
    since_at: float = field(default_factory=time.time)

    @classmethod
    def acquire(
        cls, path: Path, campaign_no: int | None = None, database: Database | None = None
    ) -> "SchedulerLock | None":
        """Take the lock now; None while another process has it.

        `database`: on PostgreSQL, which several machines may share, its lock is taken too. Raises
        `OSError`, and `UnreachableError` where the database does not answer.
        """
        # A lock, not a file with a process id: no other process can inherit that id.
        # A holder is not waited for: every command that opens the farm tries to take the lock.
        wait_s = _LOOK_S if lock_holder(path) is None else 0.0
        try:
            file = open_lock(path, wait_s=wait_s)
        except BlockingIOError:
            return None
        advisory = None
        if database is not None and database.is_postgresql:
            try:
                advisory = database.hold_scheduler_lock()
            except UnreachableError:
                file.close()
                raise
            if advisory is None:
                file.close()
                return None
        held = cls(file, advisory)
        held.name(campaign_no)
        return held

    def name(self, campaign_no: int | None) -> None:
        """Record which campaign the holder waits for."""
        holder = {"pid": os.getpid(), "since_at": self.since_at, "campaign_no": campaign_no}
        self.file.seek(0)
        self.file.truncate()
        # The file is unbuffered (`open_lock`): other processes see this at once.
        self.file.write(json.dumps(holder).encode())

    def renew(self, database: Database) -> bool:
        """Check that this process still has the database's lock; take it anew after a lost connection.

        False: another process has it now. Raises `UnreachableError` while the database does not answer.
        """
        if self.advisory is None or self.advisory.is_held():
            return True
        self.advisory.release()
        fresh = database.hold_scheduler_lock()
        if fresh is not None:
            self.advisory = fresh
        return fresh is not None

    def release(self) -> None:
        """Let another process schedule."""
        if self.advisory is not None:
            self.advisory.release()
            self.advisory = None
        self.file.close()

    def __enter__(self) -> "SchedulerLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_holder(path: Path) -> LockHolder | None:
    """Return the present holder of the lock; None if it is free."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        try:
            # Shared: two that look at the same time do not take each other for the holder.
            lock_file(file.fileno(), shared=True)
        except BlockingIOError:
            return _read_holder(file)
    return None


def _read_holder(file: BinaryIO) -> LockHolder:
    try:
        said = json.loads(file.read(200))
        return LockHolder(int(said["pid"]), float(said["since_at"]), said["campaign_no"])
    except (ValueError, KeyError, TypeError):
        # Read at the moment in which the holder writes its name.
        return LockHolder(0, 0.0)
