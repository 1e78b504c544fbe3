"""A control group (version 2) per attempt, where this process may make one: whoever is born in it stays.

Where there is none, session, descent and mark alone tell an attempt's processes
(`agent.processes.descendants`).
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

_PREFIX = "farm-attempt-"


@cache
def own() -> Path | None:
    """The group that this process is in, as a folder; None without a mounted version 2."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        mounted = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    name = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    return None if mounted is None or name is None else mounted / name.lstrip("/")


def create(attempt_id: str) -> Path | None:
    """Make the attempt's group; None where this process may not."""
    folder = _folder(attempt_id)
    if folder is None:
        return None
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder


def enter(folder: Path) -> None:
    """Move this process into a group; where it may not, it stays where it is."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"0")
        finally:
            os.close(descriptor)


def members(attempt_id: str) -> set[int]:
    """Ids of the processes in the attempt's group."""
    folder = _folder(attempt_id)
    try:
        return set() if folder is None else set(map(int, (folder / "cgroup.procs").read_text().split()))
    except OSError:
        return set()


def kill(attempt_id: str) -> None:
    """SIGKILL every process of the group at once, those that are being forked too."""
    folder = _folder(attempt_id)
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / "cgroup.kill").write_text("1")


def remove(attempt_id: str) -> None:
    """Remove the group; one that still has processes stays."""
    folder = _folder(attempt_id)
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.rmdir()


def sweep() -> None:
    """Remove the empty groups that agents left which were killed; one with processes stays."""
    base = own()
    for folder in () if base is None else base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _folder(attempt_id: str) -> Path | None:
    base = own()
    return None if base is None else base / f"{_PREFIX}{attempt_id}"
