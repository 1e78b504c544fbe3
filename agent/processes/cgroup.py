"""A control group (version 2) per attempt, where this process may make one. Its children stay in it.

Without one, an attempt's processes are found by session, descent and mark alone
(`agent.processes.descendants`).
"""

import contextlib
import os
import time
from functools import cache
from pathlib import Path
from typing import Final

_PREFIX = "farm-attempt-"

_YOUNG_S: Final = 60.0
"""Age in seconds below which an empty group is not swept. Another agent of this host makes one before the
process that enters it, which takes less than a second on an idle machine. Larger keeps more of what killed
agents left, until the next start; smaller takes a group from under a process on a machine that is busy."""


@cache
def own() -> Path | None:
    """Return the group of this process as a folder; None where version 2 is not mounted."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        mounted = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    name = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    return None if mounted is None or name is None else mounted / name.lstrip("/")


def create(attempt_id: str) -> Path | None:
    """Make the attempt's group and return its folder; None where this process may not."""
    folder = _folder(attempt_id)
    if folder is None:
        return None
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder


def limit_processes(attempt_id: str, most: int) -> Path | None:
    """Return the attempt's group that counts processes, limited to `most`; None where there can be none.

    It is the group of `create` where version 2 has the controller `pids`, else one of version 1.
    """
    for folder in (_folder(attempt_id), _counting_folder(attempt_id)):
        try:
            if folder is not None:
                folder.mkdir(exist_ok=True)
                (folder / "pids.max").write_text(str(most))
                return folder
        except OSError:
            continue
    return None


def enter(folder: Path) -> None:
    """Move this process into a group. Raises `OSError` where it may not."""
    # System calls only: this runs in a child between fork and exec. "0" means the writing process.
    descriptor = os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def members(attempt_id: str) -> set[int]:
    """Return the ids of the processes in the attempt's group."""
    folder = _folder(attempt_id)
    try:
        return set() if folder is None else set(map(int, (folder / "cgroup.procs").read_text().split()))
    except OSError:
        return set()


def kill(attempt_id: str) -> None:
    """Kill every process of the group at once, even those that are being forked."""
    folder = _folder(attempt_id)
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / "cgroup.kill").write_text("1")


def remove(attempt_id: str) -> None:
    """Remove the groups. One that still has processes stays."""
    for folder in (_folder(attempt_id), _counting_folder(attempt_id)):
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.rmdir()


def sweep() -> None:
    """Remove the empty groups of agents that were killed. One that has processes, or soon may, stays."""
    for base in (own(), _own_counting()):
        for folder in () if base is None else base.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime >= _YOUNG_S:
                    folder.rmdir()


def _folder(attempt_id: str) -> Path | None:
    base = own()
    return None if base is None else base / f"{_PREFIX}{attempt_id}"


def _counting_folder(attempt_id: str) -> Path | None:
    base = _own_counting()
    return None if base is None else base / f"{_PREFIX}{attempt_id}"


@cache
def _own_counting() -> Path | None:
    """Return this process's group of version 1 that counts processes; None where there is none."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    mounted = next((Path(f[1]) for f in mounts if f[2] == "cgroup" and "pids" in f[3].split(",")), None)
    name = next((path for _, controllers, path in groups if "pids" in controllers.split(",")), None)
    return None if mounted is None or name is None else mounted / name.lstrip("/")
