"""Exclusive use of silicon: one flock per exclusion group, for the whole host.

Groups are paths: a lease of `host-cpu/gpu-0` locks that group exclusively and shares the lock of `host-cpu`
with other leases below it, so that `host-cpu` itself (a CPU job) is granted only while none of them runs.

The agent keeps the lock to itself: whoever inherits an open file can free its lock. A runner inherits shared
locks of files beside those, which the kernel frees only when every process of the attempt is dead, also where
its agent was killed; who takes a lock takes that one too, alone for a moment.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from runtime.common.durable import create_once, lock_file

LEASES_VARIABLE = "FARM_LEASES"
_LOCK_MODE = 0o644
"""Mode of a lock: every user of the host may open it for reading, which is all that flock needs."""
_FOLDER_MODE = 0o755
"""Mode of a lease folder that this agent makes. One for agents of several users is made by the administrator,
with mode 1777, as /run/lock has it."""
_HELD_SUFFIX = ".held"
"""Ending of the file beside a lock that the processes of an attempt hold."""
_HOST_WIDE = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  # shared by all users of the host on purpose


@dataclass(frozen=True, slots=True)
class Lease:
    """The locks of a group, `own` exclusive, those above it shared. A runner inherits `held` ones."""

    exclusion_group: str
    own: tuple[int, ...]
    held: tuple[int, ...]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All of them, for a command of the user that takes the place of this process."""
        return self.own + self.held

    def release(self) -> None:
        """Close the agent's descriptors; the lock is free once no process of the attempt has them open."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def lease_folder() -> Path:
    """Return `$FARM_LEASES`, else a folder that every user and every farm of this host shares."""
    explicit = os.environ.get(LEASES_VARIABLE)
    if explicit:
        return Path(explicit)
    return next((folder for folder in _HOST_WIDE if os.access(folder, os.W_OK)), _HOST_WIDE[-1])


def try_lease(folder: Path, exclusion_group: str) -> Lease | None:
    """Lock the group now; return None while another attempt holds it. Raises `OSError`."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # By the agent's umask the new folder is closed to other users; one that was there keeps its mode.
        folder.chmod(_FOLDER_MODE)
    *above, own = lease_paths(folder, exclusion_group)
    kept: list[int] = []
    held: list[int] = []
    # From the root down, without waiting: no two attempts can wait for each other.
    try:
        for path in (*above, own):
            kept.append(_open_shared(path))
            lock_file(kept[-1], shared=path is not own)
            held.append(_open_shared(path.with_suffix(_HELD_SUFFIX)))
            if path is own:
                # Nobody is left of an attempt whose agent was killed.
                lock_file(held[-1])
            # An exclusive lock that becomes a shared one is free for a moment (flock(2)). Nobody comes
            # between: that takes the lock in `kept` first.
            lock_file(held[-1], shared=True)
    except BlockingIOError:
        _close([*kept, *held])
        return None
    except OSError:
        _close([*kept, *held])
        raise
    return Lease(exclusion_group, tuple(kept), tuple(held))


def lease_paths(folder: Path, exclusion_group: str) -> list[Path]:
    """Return the lock files of a group, from the root down; its own is the last."""
    parts = exclusion_group.split("/")
    groups = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    names = (re.sub(r"[^A-Za-z0-9._-]", "_", group) for group in groups)
    return [folder / f"farm-{name}.lock" for name in names]


def holders(folder: Path, exclusion_group: str) -> str:
    """Return ` by process 4711 (make)` for each that the kernel names as a holder of one of the locks of a
    group; empty where it names none to this user.
    """
    inodes = set()
    for path in lease_paths(folder, exclusion_group):
        with suppress(OSError):
            inodes.add(path.stat().st_ino)
    found = sorted({pid for pid, inode in _flocks() if inode in inodes})
    return " by " + " and ".join(f"process {pid} ({_program(pid)})" for pid in found) if found else ""


def _flocks() -> Iterator[tuple[int, int]]:
    """Process and inode of every flock that is held on this host, as far as this user may see them."""
    with suppress(OSError), Path("/proc/locks").open() as lines:
        for line in lines:
            # `1: FLOCK  ADVISORY  WRITE 4711 fe:01:393217 0 EOF`; of one that waits, the second word is `->`.
            words = line.split()
            if words[1] == "FLOCK":
                yield int(words[4]), int(words[5].rpartition(":")[2])


def _program(pid: int) -> str:
    """Return a process's program, of Python's its module too; no argument, which might be secret."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended; what it started goes on"
    after = words.index("-m") + 1 if "-m" in words else len(words)
    return " -m ".join((name, *words[after : after + 1]))


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open_shared(path: Path) -> int:
    """Open or create a lock file. One of another user can only be opened for reading, which flock allows."""
    # Other users may write in the folder (/run/lock, /tmp): a link of theirs is not followed.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    # Not synchronised: a lock is about running processes, and its file is empty.
    create_once(path, b"", _LOCK_MODE, sync=False)
    return os.open(path, flags)
