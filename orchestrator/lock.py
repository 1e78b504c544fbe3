"""One scheduler per farm: an flock that the kernel frees, however its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who schedules. `since_at`: UTC seconds; `campaign_no`: the campaign it waits for itself."""

    pid: int
    since_at: float
    campaign_no: int | None = None


@dataclass(slots=True)
class SchedulerLock:
    """A held lock. Leaving the `with` block frees it."""

    descriptor: int

    @classmethod
    def acquire(cls, path: Path, campaign_no: int | None = None) -> SchedulerLock | None:
        """Take the lock now; None while another process has it. Raises `OSError`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        said = {"pid": os.getpid(), "since_at": time.time(), "campaign_no": campaign_no}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let another process schedule."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> SchedulerLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_holder(path: Path) -> LockHolder | None:
    """Who holds the lock now; None where nobody does."""
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
