"""Ensures one scheduler per farm, by locks that the kernel or the database frees when their holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from agent.wire.private_folder import FILE_MODE
from orchestrator.db.engine.locks import AdvisoryLock
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that schedules. `since_at`: UTC seconds; `campaign_no`: the campaign it waits for."""

    pid: int
    since_at: float
    campaign_no: int | None = None


@dataclass(slots=True)
class SchedulerLock:
    """A held lock. Leaving the `with` block frees it."""

    descriptor: int
    advisory: AdvisoryLock | None = None

    @classmethod
    def acquire(
        cls, path: Path, campaign_no: int | None = None, database: Database | None = None
    ) -> SchedulerLock | None:
        """Take the lock now; None while another process has it.

        `database`: on PostgreSQL, which several machines may share, its lock is taken too. Raises
        `OSError`, and `UnreachableError` where the database does not answer.
        """
        # flock, not a file with a process id: the kernel frees it however this process dies, and no other
        # process
        # can inherit that id. Close-on-exec: a child that outlives this process must not keep the lock.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        advisory = None
        if database is not None and database.is_postgresql:
            try:
                advisory = database.hold_scheduler_lock()
            except UnreachableError:
                os.close(descriptor)
                raise
            if advisory is None:
                os.close(descriptor)
                return None
        said = {"pid": os.getpid(), "since_at": time.time(), "campaign_no": campaign_no}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)
        return cls(descriptor, advisory)

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
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> SchedulerLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_holder(path: Path) -> LockHolder | None:
    """The present holder of the lock; None where it is free."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)
    return None


def _read_holder(descriptor: int) -> LockHolder:
    try:
        said = json.loads(os.pread(descriptor, 200, 0))
        return LockHolder(int(said["pid"]), float(said["since_at"]), said["campaign_no"])
    except (ValueError, KeyError, TypeError):
        return LockHolder(0, 0.0)
