"""A control group (version 2) per attempt, where this process may make one. Its children stay in it.

Without one, an attempt's processes are found by session, descent and mark alone
(`agent.processes.descendants`).

A process that the kernel kills, out of memory, ends by SIGKILL, which does not tell the cause. The kernel's
own count does: `memory.events` of groups of version 2, `memory.oom_control` of version 1, else `/proc/vmstat`
of the whole host. macOS has neither: there the cause is not told.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_PREFIX = "farm-attempt-"
_COUNTER: Final = "pids"
"""The controller of version 1 that counts processes."""

_YOUNG_S: Final = 60.0
"""Age in seconds below which an empty group is not swept. Another agent of this host makes one before the
process that enters it, which takes less than a second on an idle machine. Larger keeps more of what killed
agents left, until the next start; smaller takes a group from under a process on a machine that is busy."""


def mounted(controller: str, root: Path = Path("/")) -> tuple[Path, Path] | None:
    """Return the mount and this process's group of version 1 that has a controller, of version 2 where that
    is empty; None where there is none. `root`: where `/proc` and `/sys` are.
    """
    try:
        mounts = [line.split() for line in (root / "proc/self/mounts").read_text().splitlines()]
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    kind = "cgroup" if controller else "cgroup2"
    # Fields: source, mount point, type, options. A mount
    # of version 1 names its controllers among the options.
    tops = (f[1] for f in mounts if f[2] == kind and controller in ("", *f[3].split(",")))
    # The line of version 2 names no controller.
    names = (path for _, controllers, path in groups if controller in controllers.split(","))
    top, name = next(tops, None), next(names, None)
    if top is None or name is None:
        return None
    return root / top.lstrip("/"), root / top.lstrip("/") / name.lstrip("/")


@cache
def own(controller: str = "") -> Path | None:
    """Return the folder of this process's group, as of `mounted`; None where there is none."""
    found = mounted(controller)
    return None if found is None else found[1]


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
    for folder in (_folder(attempt_id), _folder(attempt_id, _COUNTER)):
        try:
            if folder is not None:
                folder.mkdir(exist_ok=True)
                # In version 2 the file is there only where the group
                # above delegates `pids`; else version 1 is tried.
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
            # Since Linux 5.14, and in version 2 alone; elsewhere `reap` kills one by one until none is left.
            (folder / "cgroup.kill").write_text("1")


def remove(attempt_id: str) -> None:
    """Remove the groups. One that still has processes stays."""
    for folder in (_folder(attempt_id), _folder(attempt_id, _COUNTER)):
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.rmdir()


def sweep() -> None:
    """Remove the empty groups of agents that were killed. One that has processes, or soon may, stays."""
    for base in (own(), own(_COUNTER)):
        for folder in () if base is None else base.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime >= _YOUNG_S:
                    folder.rmdir()


def _folder(attempt_id: str, controller: str = "") -> Path | None:
    base = own(controller)
    return None if base is None else base / f"{_PREFIX}{attempt_id}"


SCORE_ADJUSTMENT = 500
"""The oom_score_adj of a runner, on the kernel's scale from -1000 (never killed) to 1000 (killed first). The
kernel adds it to the share of memory in use, in thousandths: 500 puts a runner before its small agent."""

_COUNT = "oom_kill"


def oom_kills() -> int:
    """Return the number of processes killed so far. Two readings tell whether one was killed in between."""
    for path in _counters():
        try:
            words = path.read_text().split()
        except OSError:
            continue
        # As a word of its own: version 1 has `oom_kill_disable` in the same file.
        if _COUNT in words:
            return int(words[words.index(_COUNT) + 1])
    return 0


def raise_oom_score() -> None:
    """Make the kernel kill this process before its agent when memory runs out. A higher score stays."""
    path = Path("/proc/self/oom_score_adj")
    if int(path.read_text()) < SCORE_ADJUSTMENT:
        path.write_text(str(SCORE_ADJUSTMENT))


def _counters() -> Iterator[Path]:
    """Yield the files where the kernel may keep the count, the narrowest group first."""
    group = own()
    if group is not None:
        # The count of a group has those of the groups below in it, so also that of the attempt's group.
        yield from (folder / "memory.events" for folder in (group, *group.parents))
    first = own("memory")
    if first is not None:
        yield first / "memory.oom_control"
    yield Path("/proc/vmstat")
