"""How often the kernel has killed for want of memory where this process lives.

A process killed so ends by SIGKILL, which tells nothing: the kernel's own count does (`memory.events` of
control groups of version 2, `memory.oom_control` of version 1, else `/proc/vmstat` of the whole host).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.processes import cgroup

SCORE_ADJUSTMENT = 500
"""A runner's standing with the kernel, from -1000 (never) to 1000 (first): it goes before its agent."""

_COUNT = "oom_kill"


def kills() -> int:
    """Processes killed so far. Two readings tell whether one was killed in between."""
    for path in _counters():
        try:
            words = path.read_text().split()
        except OSError:
            continue
        if _COUNT in words:
            return int(words[words.index(_COUNT) + 1])
    return 0


def offer() -> None:
    """Out of memory, the kernel is to take this process before those that it works for.

    A standing that is worse already stays.
    """
    path = Path("/proc/self/oom_score_adj")
    if int(path.read_text()) < SCORE_ADJUSTMENT:
        path.write_text(str(SCORE_ADJUSTMENT))


def _counters() -> Iterator[Path]:
    """Where the kernel may keep the count, the narrowest first."""
    group = cgroup.own()
    if group is not None:
        yield from (folder / "memory.events" for folder in (group, *group.parents))
    first = _memory_group()
    if first is not None:
        yield first / "memory.oom_control"
    yield Path("/proc/vmstat")


def _memory_group() -> Path | None:
    """The group of version 1 that counts this process's memory; None where there is none."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = (f[1] for f in mounts if f[2] == "cgroup" and "memory" in f[3].split(","))
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    named = (path for _, controllers, path in groups if "memory" in controllers.split(","))
    at, name = next(mounted, None), next(named, None)
    return None if at is None or name is None else Path(at) / name.lstrip("/")
