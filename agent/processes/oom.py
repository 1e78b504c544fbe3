"""Counts the processes that the kernel has killed, out of memory, in this process's control group.

Such a process ends by SIGKILL, which does not tell the cause; the kernel's own count does (`memory.events` of
control groups of version 2, `memory.oom_control` of version 1, else `/proc/vmstat` of the whole host).
"""

from collections.abc import Iterator
from pathlib import Path

from agent.processes import cgroup

SCORE_ADJUSTMENT = 500
"""The oom_score_adj of a runner, on the kernel's scale from -1000 (never killed) to 1000 (killed first). The
kernel adds it to the share of memory in use, in thousandths: 500 puts a runner before its small agent."""

_COUNT = "oom_kill"


def kills() -> int:
    """Return the number of processes killed so far. Two readings tell whether one was killed in between."""
    for path in _counters():
        try:
            words = path.read_text().split()
        except OSError:
            continue
        if _COUNT in words:
            return int(words[words.index(_COUNT) + 1])
    return 0


def raise_own_score() -> None:
    """Make the kernel kill this process before its agent when memory runs out. A higher score stays."""
    path = Path("/proc/self/oom_score_adj")
    if int(path.read_text()) < SCORE_ADJUSTMENT:
        path.write_text(str(SCORE_ADJUSTMENT))


def _counters() -> Iterator[Path]:
    """Yield the files where the kernel may keep the count, the narrowest group first."""
    group = cgroup.own()
    if group is not None:
        yield from (folder / "memory.events" for folder in (group, *group.parents))
    first = _memory_group()
    if first is not None:
        yield first / "memory.oom_control"
    yield Path("/proc/vmstat")


def _memory_group() -> Path | None:
    """Return the group of version 1 that counts this process's memory; None where there is none."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = (f[1] for f in mounts if f[2] == "cgroup" and "memory" in f[3].split(","))
    groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    named = (path for _, controllers, path in groups if "memory" in controllers.split(","))
    at, name = next(mounted, None), next(named, None)
    return None if at is None or name is None else Path(at) / name.lstrip("/")
