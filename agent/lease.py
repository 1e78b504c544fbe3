"""Exclusive use of silicon: one flock per exclusion group, for the whole host.

The lock belongs to an open file that the runner inherits, so the kernel frees it only when the agent has
let go and every process of the attempt is dead, however it died.
"""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

LEASES_VARIABLE = "FARM_LEASES"
_HOST_WIDE = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  # shared by all users of the host on purpose


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lock. `descriptor` is inheritable on request (`pass_fds`)."""

    exclusion_group: str
    descriptor: int

    def release(self) -> None:
        """Let go of the agent's share; the lock is free once no runner holds it either."""
        os.close(self.descriptor)


def lease_folder() -> Path:
    """`$FARM_LEASES`, else a folder that every user and every farm of this host shares."""
    explicit = os.environ.get(LEASES_VARIABLE)
    if explicit:
        return Path(explicit)
    return next((folder for folder in _HOST_WIDE if os.access(folder, os.W_OK)), _HOST_WIDE[-1])


def try_lease(folder: Path, exclusion_group: str) -> Lease | None:
    """Take the group's lock now; None while another attempt holds it. Raises `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _open_shared(folder / f"farm-{_file_name(exclusion_group)}.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return Lease(exclusion_group, descriptor)


def _open_shared(path: Path) -> int:
    """Open or create; a file of another user in a sticky folder is only read, which flock allows."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)


def _file_name(exclusion_group: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", exclusion_group)
