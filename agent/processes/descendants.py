"""Every process of an attempt, found by control group, session, descent, or a mark with its id.

Linux tells of processes in /proc; macOS through ps(1), and of their environments only to the user whose they
are.
"""

import contextlib
import os
import secrets
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from agent.processes import cgroup
from runtime.common.system import columns, told_by

ATTEMPT_VARIABLE: Final = "FARM_ATTEMPT"
"""In the environment of every process of an attempt: its mark. It finds processes that left the session."""

_PROC: Final = "/proc"
_READ_BYTES: Final = 1 << 16
"""Bytes read from a file of /proc at once; longer ones are read in several pieces."""
_ZOMBIE: Final = "Z"
LISTED: Final = ("-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=")
"""Options of ps(1) by which it prints four columns without a heading: macOS takes one keyword for each."""


def new_mark(attempt_id: str) -> str:
    """Return a mark for an attempt: its id, and what no runner of another attempt can guess."""
    return f"{attempt_id}:{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that tell how processes are related."""

    pid: int
    parent: int
    group: int
    session: int
    state: str


def processes() -> Iterator[ProcessStat]:
    """Yield every process of this host, zombies included."""
    if sys.platform == "darwin":
        yield from listed(told_by("ps", "-A", *LISTED))
        return
    for name in os.listdir(_PROC):  # noqa: PTH208  # a Path each would cost as much as the look itself
        if name.isdigit():
            stat = _read_stat(int(name))
            if stat is not None:
                yield stat


def listed(text: str) -> Iterator[ProcessStat]:
    """Yield the processes of a table with the columns `LISTED`. Those that have ended since are left out."""
    for pid, parent, group, state in columns(text, len(LISTED) // 2):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            yield ProcessStat(int(pid), int(parent), int(group), os.getsid(int(pid)), state[:1])


def processes_of(attempt_id: str, runner_pid: int | None = None) -> set[int]:
    """Return the ids of an attempt's live processes: session members and descendants of the runner, those in
    its control group, and marked ones.

    All descendants of a runner of this agent stay below this process, which is a subreaper: marks are only
    read there. Those of an earlier agent's runner (`runner_pid` None) may be anywhere, and so may those of
    every runner on macOS, where no process adopts orphans.
    """
    scan = list(processes())
    everyone = [stat for stat in scan if stat.state != _ZOMBIE]
    alive = {stat.pid for stat in everyone}
    found = cgroup.members(attempt_id) & alive
    marked = alive
    if runner_pid is not None:
        if sys.platform == "linux":
            marked &= _below(scan, {os.getpid()})
        found |= {stat.pid for stat in everyone if runner_pid in (stat.pid, stat.session)}
    found |= {pid for pid, mark in _marks(marked).items() if mark.partition(":")[0] == attempt_id}
    if runner_pid is not None:
        # Last: what those that the group or a mark found have started belongs to the attempt, too.
        found |= _below(scan, found | {runner_pid}) & alive
    found.discard(os.getpid())
    return found


def strays(live_marks: Iterable[str], known_children: Iterable[int]) -> set[int]:
    """Return orphans that this agent inherited as a subreaper and that belong to no running attempt, by the
    marks of those: whoever names the id of another attempt belongs to none.

    Zombies are among them: they only have to be reaped. On macOS no orphan is inherited.
    """
    if sys.platform == "darwin":
        return set()
    live, known = set(live_marks), set(known_children)
    adopted = (stat.pid for stat in processes() if stat.parent == os.getpid() and stat.pid not in known)
    return {pid for pid in adopted if marker_of(pid) not in live}


def marker_of(pid: int) -> str | None:
    """Return the mark in a process's environment; None where it has none or may not be read."""
    prefix = f"{ATTEMPT_VARIABLE}=".encode()
    environment = _read(pid, "environ")
    if environment is None:
        return None
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry.removeprefix(prefix).decode(errors="replace")
    return None


def _marks(pids: set[int]) -> dict[int, str]:
    """Return the marks of those of these processes that have one."""
    if sys.platform == "darwin":
        # One call for all: a call for each of a Mac's hundreds would take seconds.
        told = marks_in(told_by("ps", "-A", "-E", "-ww", "-o", "pid=", "-o", "command="))
        return {pid: mark for pid, mark in told.items() if pid in pids}
    return {pid: mark for pid in pids if (mark := marker_of(pid)) is not None}


def marks_in(text: str) -> dict[int, str]:
    """Return the marks by process of a table of ids and commands, after whose words stand the
    variables of the environment, between spaces too (ps(1), `-E`).
    """
    prefix = f"{ATTEMPT_VARIABLE}="
    rows = ((int(pid), words.split()) for pid, words in columns(text, 2))
    marked = ((pid, next((word for word in words if word.startswith(prefix)), "")) for pid, words in rows)
    return {pid: word.removeprefix(prefix) for pid, word in marked if word}


def _below(everyone: list[ProcessStat], roots: set[int]) -> set[int]:
    """Return all descendants of `roots`."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in everyone:
        children[stat.parent].append(stat.pid)
    found: set[int] = set()
    frontier = set(roots)
    while frontier:
        # Without those found before: the table is not read
        # at one moment, and a reused id could close a cycle.
        frontier = {pid for parent in frontier for pid in children[parent]} - found
        found |= frontier
    return found


def _read_stat(pid: int) -> ProcessStat | None:
    text = _read(pid, "stat")
    if text is None:
        return None
    # The program's name stands in parentheses and may hold some itself: the fields follow the last one.
    fields = text.rpartition(b")")[2].split()
    parent, group, session = map(int, fields[1:4])
    return ProcessStat(pid, parent, group, session, state=fields[0].decode())


def _read(pid: int, name: str) -> bytes | None:
    """Return a whole file of a process; None where the process is gone or the file may not be read."""
    try:
        descriptor = os.open(f"{_PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(descriptor, _READ_BYTES), b""))
    except OSError:
        return None
    finally:
        os.close(descriptor)
