"""The log of processes: one line per start and end, written by the runner that starts and ends them.

For every process that runs the model a runner appends `start` and `end` to a log in its own folder. Once
every process of an attempt is dead, the agent takes these lines into its own log and appends `gone`, which
ends the interval of any other. Times are by `boot_clock_ns`: the clock of all processes of a host, which also
runs while the host sleeps.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from agent.processes.left_files import open_left
from agent.wire.private_folder import FILE_MODE
from runtime.common.system import boot_clock_ns

FILE: Final = "runs.log"
"""Name of an agent's log in its state folder, and of a runner's in the folder of its attempt."""

MOST_TAKEN_BYTES: Final = 1 << 20
"""Bytes of a runner's log that its agent reads. Chosen: a line has some 200, an attempt starts tens of
processes; but a runner can write what it likes."""

MOST_KEPT_BYTES: Final = 16 << 20
"""Bytes of an agent's log: a longer one is put aside, in the place of the one before. Chosen: the runs of
thousands of attempts; larger keeps more history, on the disk that attempts need."""

Event = Literal["start", "end", "gone"]


@dataclass(frozen=True, slots=True)
class RunLine:
    """One line of the log. `time_ns`: by `boot_clock_ns`.

    `what`: reference, measure, labelled, the name of a pass (`agent.wire.passes`); of gone, attempt.
    `carrier`: the attempt under whose lease the process runs; empty where it is the attempt itself.
    """

    time_ns: int
    event: Event
    attempt_id: str
    exclusion_group: str
    pid: int
    what: str
    carrier: str = ""


_LINE: Final = TypeAdapter(RunLine)


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
    now_ns = boot_clock_ns()
    _write(path, [RunLine(now_ns, event, attempt_id, exclusion_group, pid or os.getpid(), what, carrier)])


def take(path: Path, left: Path, attempt_id: str, exclusion_group: str, carrier: str = "") -> None:
    """Move the starts and ends that a runner left into the agent's log, which is put aside if it is too long.

    A runner speaks of the processes of its own attempt alone, whatever it wrote; other lines are dropped.
    """
    with suppress(FileNotFoundError):
        if path.stat().st_size > MOST_KEPT_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    try:
        with open_left(left) as file:
            texts = file.read(MOST_TAKEN_BYTES).splitlines()
        # Before its lines are written: a crash in between loses them, and never has one twice.
        left.unlink()
    except OSError:
        return
    # What no runner may say of itself is the agent's word; the rest is replaced by each line's.
    own = RunLine(0, "gone", attempt_id, exclusion_group, 0, "", carrier)
    lines = []
    for text in texts:
        with suppress(ValidationError):
            told = _LINE.validate_json(text)
            lines.append(replace(own, time_ns=told.time_ns, event=told.event, pid=told.pid, what=told.what))
    _write(path, [line for line in lines if line.event != "gone"])


def _write(path: Path, lines: Iterable[RunLine]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        os.write(descriptor, "".join(json.dumps(asdict(line)) + "\n" for line in lines).encode())
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
