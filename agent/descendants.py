"""Find every process of an attempt: in its control group, in its session, below its runner, or marked with
its id (Linux /proc).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent import cgroup
from agent.attempt import ATTEMPT_VARIABLE

_PROC = Path("/proc")
_ZOMBIE = "Z"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The part of /proc/<pid>/stat that tells who belongs to whom."""

    pid: int
    parent: int
    session: int
    state: str


def processes() -> Iterator[ProcessStat]:
    """Every process of this host, zombies included."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            stat = _read_stat(int(entry.name))
            if stat is not None:
                yield stat


def processes_of(attempt_id: str, runner_pid: int | None = None) -> set[int]:
    """Ids of an attempt's live processes: session members and descendants of the runner, those in its
    control group, and marked ones.
    """
    everyone = [stat for stat in processes() if stat.state != _ZOMBIE]
    found = {stat.pid for stat in everyone if marker_of(stat.pid) == attempt_id}
    found |= cgroup.members(attempt_id) & {stat.pid for stat in everyone}
    if runner_pid is not None:
        found |= {stat.pid for stat in everyone if runner_pid in (stat.pid, stat.session)}
        found |= _below(everyone, found | {runner_pid})
    found.discard(os.getpid())
    return found


def strays(live_attempts: Iterable[str], known_children: Iterable[int]) -> set[int]:
    """Orphans that this agent inherited (it is a subreaper) and that belong to no live attempt.

    Zombies are among them: they only have to be reaped.
    """
    live, known = set(live_attempts), set(known_children)
    adopted = (stat.pid for stat in processes() if stat.parent == os.getpid() and stat.pid not in known)
    return {pid for pid in adopted if marker_of(pid) not in live}


def marker_of(pid: int) -> str | None:
    """The attempt id in a process's environment; None where there is none or it may not be read."""
    prefix = f"{ATTEMPT_VARIABLE}=".encode()
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return None


def _below(everyone: list[ProcessStat], roots: set[int]) -> set[int]:
    """All descendants of `roots`."""
    found: set[int] = set()
    frontier = set(roots)
    while frontier:
        frontier = {stat.pid for stat in everyone if stat.parent in frontier} - found
        found |= frontier
    return found


def _read_stat(pid: int) -> ProcessStat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return ProcessStat(pid, parent=int(fields[1]), session=int(fields[3]), state=fields[0])
