"""Which other processes keep a machine busy, as far as this process may see them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of

_AFTER_NAME: Final = 11
"""Where the CPU time (user, then system) stands among the fields of /proc/PID/stat after the name."""

NAMED: Final = 3
"""How many processes a message names. Chosen: more rarely keep a machine busy, and it stays one line."""


def cpu_ticks(root: Path = ROOT) -> dict[tuple[int, str], int]:
    """The CPU time of each process that this one may see, in ticks, by id and name; not its own."""
    found = {}
    for folder in (root / "proc").glob("[0-9]*"):
        name, _, rest = text_of(folder / "stat").partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) > _AFTER_NAME + 1 and int(folder.name) != os.getpid():
            found[int(folder.name), name] = int(fields[_AFTER_NAME]) + int(fields[_AFTER_NAME + 1])
    return found


def busiest(before: Mapping[tuple[int, str], int], after: Mapping[tuple[int, str], int]) -> str:
    """Name the processes that used most between two readings: `ffmpeg (4211), python (99)`."""
    used = {process: ticks - before.get(process, 0) for process, ticks in after.items()}
    first = sorted((p for p in used if used[p] > 0), key=lambda p: -used[p])[:NAMED]
    return ", ".join(f"{name} ({pid})" for pid, name in first) or "processes that the runner may not see"
