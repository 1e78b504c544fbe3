"""The control groups of this process, of either version, those above it, and the memory that they leave."""

from pathlib import Path
from typing import Final

from agent.processes.cgroup import mounted

ROOT: Final = Path("/")
"""Where `/proc` and `/sys` are. Functions that read them take another root, where copies of files lie."""

_LIMITS: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""Files of a control group's limit and use, of version 2 and of version 1."""


def groups(controller: str, root: Path = ROOT) -> list[Path]:
    """Return the folders that govern a resource of this process, the narrowest first; empty where none do."""
    # Version 1 has a hierarchy for each controller, version 2 one for all.
    found = mounted(controller, root) or mounted("", root)
    if found is None:
        return []
    top, folder = found
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def cpu_quota(root: Path = ROOT) -> float | None:
    """Return how many CPUs' time the tightest group grants this process; None where none limits it."""
    quotas = [quota for folder in groups("cpu", root) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def text_of(path: Path) -> str:
    """Return the text of a kernel's file; empty where it is missing or refuses."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _quota(folder: Path) -> float | None:
    """`cpu.max` of version 2 is `max 100000` or `200000 100000`; version 1 has -1 for no limit."""
    words = text_of(folder / "cpu.max").split() or [
        text_of(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or words[1] == "0":
        return None
    return int(words[0]) / int(words[1])


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
