"""Waits until the machine is quiet, before a process is measured on it, and names who keeps it busy."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of
from agent.machine.counters import Counters, Window
from agent.machine.disturbance import disturbances
from agent.machine.workload import Reading

WAITS: Final = {"quick": 0, "standard": 3, "publish": 3}
"""How often one attempt waits, by level. `quick` is for a look: it measures at once and says what it saw."""

WAIT_S: Final = 60.0
"""Longest wait in seconds. Three of them are a fifth of the time that an attempt has by default."""

_LOOK_S: Final = 0.25
"""Seconds for which the machine is watched: the kernel counts in hundredths of a second, so that a fifth of a
CPU is seen. Every process of the levels that wait begins so much later."""

_PAUSE_S: Final = 2.0
"""Seconds between two looks at a busy machine."""

_AFTER_NAME: Final = 11
"""Where the CPU time (user, then system) stands among the fields of /proc/PID/stat after the name."""

_NAMED: Final = 3
"""How many processes a message names. Chosen: more rarely keep a machine busy, and it stays one line."""


@dataclass(slots=True)
class Gate:
    """The waiting of one attempt. `waits` is how often it may still wait; `tell` is told why it does.

    `read` runs the calibration workload, which is compared with its `history`.
    """

    cpus: Collection[int]
    history: Sequence[Reading]
    waits: int
    tell: Callable[[str], None]
    read: Callable[[], Reading]
    wait_s: float = WAIT_S

    def pass_quietly(self) -> str | None:
        """Return None once the machine is quiet, or why it still is not when all waiting is over."""
        why = self._busy()
        allowed = self.waits
        while why is not None and self.waits > 0:
            self.waits -= 1
            until = time.monotonic() + self.wait_s
            while why is not None and time.monotonic() < until:
                self.tell(f"waiting for a quiet machine: {why}")
                time.sleep(_PAUSE_S)
                why = self._busy()
        waited = allowed - self.waits
        return (
            why if why is None or not waited else f"{why} (after {waited} x {self.wait_s:.0f} s of waiting)"
        )

    def _busy(self) -> str | None:
        before, seen = Counters.now(self.cpus), _cpu_ticks()
        time.sleep(_LOOK_S)
        window = Window.between(before, Counters.now(self.cpus), len(self.cpus))
        found = disturbances(window).found
        if found:
            return f"{found[0].text}: {_busiest(seen, _cpu_ticks())}"
        return self.read().slower_than(self.history)


def _cpu_ticks(root: Path = ROOT) -> dict[tuple[int, str], int]:
    """Return the CPU ticks of each process that this one may see, except itself, by id and name."""
    found = {}
    for folder in (root / "proc").glob("[0-9]*"):
        # The name stands in parentheses, and may hold some itself.
        name, _, rest = text_of(folder / "stat").partition("(")[2].rpartition(")")
        fields = rest.split()
        if len(fields) > _AFTER_NAME + 1 and int(folder.name) != os.getpid():
            found[int(folder.name), name] = int(fields[_AFTER_NAME]) + int(fields[_AFTER_NAME + 1])
    return found


def _busiest(before: Mapping[tuple[int, str], int], after: Mapping[tuple[int, str], int]) -> str:
    """Name the processes that used most between two readings: `ffmpeg (4211), python (99)`."""
    used = {process: ticks - before.get(process, 0) for process, ticks in after.items()}
    first = sorted((p for p in used if used[p] > 0), key=lambda p: -used[p])[:_NAMED]
    return ", ".join(f"{name} ({pid})" for pid, name in first) or "processes that the runner may not see"
