"""How much memory a process may still take before the kernel swaps or kills."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, groups, text_of

_LIMITS: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a control group's limit and use, of version 2 and of version 1."""


def room_bytes(root: Path = ROOT) -> int | None:
    """Return the bytes that the host and the control groups of this process still have; None if untold."""
    rooms = []
    for line in text_of(root / "proc/meminfo").splitlines():
        name, _, size = line.partition(":")
        if name == "MemAvailable":
            rooms.append(int(size.split()[0]) * 1024)
    for folder in groups("memory", root):
        for limit, used in _LIMITS:
            values = text_of(folder / limit).strip(), text_of(folder / used).strip()
            if all(map(str.isdecimal, values)):
                rooms.append(max(0, int(values[0]) - int(values[1])))
    return min(rooms, default=None)
