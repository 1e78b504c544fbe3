"""The log of processes: one line per start and end, written by the runner that starts and ends them.

For every process that runs the model it appends `start` and `end`; the agent appends `gone` once every
process of an attempt is dead, which ends the interval of any other. Times are CLOCK_BOOTTIME: the clock of
all processes of a host, which also runs while the host sleeps.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from agent.wire.private_folder import FILE_MODE

Event = Literal["start", "end", "gone"]


@dataclass(frozen=True, slots=True)
class RunLine:
    """One line of the log. `time_ns`: CLOCK_BOOTTIME.

    `what`: reference | measure | labelled | sustained | throughput | profile; of gone, attempt.
    `carrier`: the attempt under whose lease the process runs; empty where it is the attempt itself.
    """

    time_ns: int
    event: Event
    attempt_id: str
    exclusion_group: str
    pid: int
    what: str
    carrier: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """The time in which one process ran; `end_ns` is None where neither it nor the agent wrote its end."""

    attempt_id: str
    exclusion_group: str
    pid: int
    what: str
    start_ns: int
    end_ns: int | None
    carrier: str = ""


def append(
    path: Path,
    event: Event,
    attempt_id: str,
    exclusion_group: str,
    what: str,
    pid: int | None = None,
    *,
    carrier: str = "",
) -> None:
    """Append one line in a single write, so that lines of several processes never mix.

    `pid`: the process that it is about, where that is not this one. `carrier`: the attempt under whose lease
    it runs, where that is another one.
    """
    now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    line = RunLine(now_ns, event, attempt_id, exclusion_group, pid or os.getpid(), what, carrier)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        os.write(descriptor, (json.dumps(asdict(line)) + "\n").encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> list[RunLine]:
    """Return all lines in the order of writing; none where the log does not exist yet."""
    if not path.exists():
        return []
    return [RunLine(**json.loads(line)) for line in path.read_text().splitlines()]


def intervals(lines: Iterable[RunLine]) -> list[Interval]:
    """Return the intervals of processes by their start; `gone` ends every open one of its attempt."""
    finished: list[Interval] = []
    open_starts: dict[tuple[str, int], RunLine] = {}
    for line in lines:
        key = (line.attempt_id, line.pid)
        if line.event == "start":
            open_starts[key] = line
        elif line.event == "end":
            # An end without a start is of no process.
            if key in open_starts:
                finished.append(_interval(open_starts.pop(key), line.time_ns))
        else:
            left = [k for k in open_starts if k[0] == line.attempt_id]
            finished += [_interval(open_starts.pop(k), line.time_ns) for k in left]
    finished += [_interval(start, None) for start in open_starts.values()]
    return sorted(finished, key=lambda i: i.start_ns)


def _interval(start: RunLine, end_ns: int | None) -> Interval:
    return Interval(
        start.attempt_id, start.exclusion_group, start.pid, start.what, start.time_ns, end_ns, start.carrier
    )


def overlaps(lives: Iterable[Interval]) -> list[tuple[Interval, Interval]]:
    """Return pairs of attempts that ran at the same time in one exclusion group under different leases.

    The arms of a comparison share the lease of one attempt; they are alive together, and take turns.
    """
    groups: dict[str, list[Interval]] = {}
    for life in lives:
        groups.setdefault(life.exclusion_group, []).append(life)
    found = []
    for members in groups.values():
        ordered = sorted(members, key=lambda i: i.start_ns)
        for i, first in enumerate(ordered):
            for second in ordered[i + 1 :]:
                ended = first.end_ns is not None and first.end_ns <= second.start_ns
                if not ended and _lease(first) != _lease(second):
                    found.append((first, second))
    return found


def _lease(life: Interval) -> str:
    return life.carrier or life.attempt_id
