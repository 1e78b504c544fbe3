"""Reads the records of the runners themselves: the ground truth against which the database is checked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.attempt import runlog
from agent.processes.descendants import ATTEMPT_VARIABLE
from tests.faults.runner import TRUTH_FILE


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a runner. `event`: started | completed; the hash and the status where it completed."""

    event: str
    time_ns: int
    pid: int
    attempt_id: str
    cell_id: str
    device_id: str
    epoch: int
    attempt_no: int
    status: str = ""
    samples_sha256: str | None = None


def facts(states: Iterable[Path]) -> list[Fact]:
    """Everything the runners of these agents (their state folders) wrote, by time."""
    found = []
    for state in states:
        path = state / TRUTH_FILE
        if path.exists():
            found += [Fact(**json.loads(line)) for line in path.read_text().splitlines()]
    return sorted(found, key=lambda fact: fact.time_ns)


def lives(states: Iterable[Path]) -> list[runlog.Interval]:
    """Return the lives of all measuring processes of one host, which may have several agents."""
    found = []
    for state in states:
        # Those of attempts that still run are in their folders.
        logs = [state / runlog.FILE, *sorted(state.glob(f"work/*/{runlog.FILE}"))]
        found += runlog.intervals(line for log in logs for line in runlog.read(log))
    return sorted(found, key=lambda life: life.start_ns)


def spooled(state: Path) -> set[str]:
    """Return the attempts whose result this agent still owes, by its journal."""
    journal = state / "journal.db"
    if not journal.exists():
        return set()
    with sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=30) as database:
        rows = database.execute("SELECT attempt_id FROM attempt WHERE state = 'spooled'").fetchall()
    database.close()
    return {str(row[0]) for row in rows}


def alive() -> dict[str, set[int]]:
    """Attempt id -> processes on this machine that are marked with it, zombies excluded."""
    prefix = f"{ATTEMPT_VARIABLE}=".encode()
    found: dict[str, set[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            marks = [e for e in (folder / "environ").read_bytes().split(b"\0") if e.startswith(prefix)]
        except OSError:
            continue
        for mark in marks:
            found.setdefault(mark.removeprefix(prefix).decode().partition(":")[0], set()).add(
                int(folder.name)
            )
    return found
