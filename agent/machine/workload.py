"""A piece of work of a known size, before and after each measuring process: does the machine run as usual?

Its time is compared with the device's own history. It delays a measurement or labels it; no figure is ever
scaled by it. `sha256` computes in the caches of one core, the copy goes through memory; neither needs a
library.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

_HASHED: Final = bytes(512 * 1024)
"""512 KiB, which fit into a core's second-level cache: one run takes a third of a millisecond with SHA
instructions, and two without."""

_COPIED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of one copy: more than a core's own caches hold. One takes one to three milliseconds."""

COMPUTE_FACT: Final = "workload_compute_ns"
COPY_FACT: Final = "workload_copy_ns"
"""Facts of a result: the readings in their order, separated by blanks."""

_RUNS: Final = 3
"""Runs of each, of which the fastest counts: an interrupt costs one run. All six stay below 20 ms."""

HISTORY: Final = 50
"""Readings that are kept for a device. More would follow a machine that becomes slower too late."""

FEWEST: Final = 20
"""Readings from which on a history is one. Readings of one attempt resemble each other: 20 are of at least
two attempts at the level `standard`, of four at `quick`. With fewer, a spread is not known."""

SLOWER: Final = 1.3
"""Least excess over the usual duration that is one. Chosen: neighbours that take a core's turbo or half of
its memory bandwidth exceed it; the readings of a quiet machine differ by a tenth."""

UNUSUAL: Final = 3.5
"""Modified z-score (distance from the median by the scaled median absolute deviation) above which a reading
does not belong to its history: the bound of Iglewicz and Hoaglin (1993). Taken on logarithms, since durations
differ by factors."""

_MAD_OF_NORMAL: Final = 0.6745
"""Median absolute deviation of a normal distribution whose standard deviation is 1."""

VAGUE: Final = 2.0
"""Excess above which a history can tell so little that the workload counts as a signal that was not seen."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Fastest runs in ns."""

    compute_ns: int
    copy_ns: int

    @classmethod
    def now(cls) -> Reading:
        """Run the workload."""
        source = bytearray(_COPIED_BYTES)
        return cls(_fastest(lambda: hashlib.sha256(_HASHED).digest()), _fastest(lambda: bytes(source)))

    def slower_than(self, history: Sequence[Reading]) -> str | None:
        """Say what took unusually long, None where nothing did or the history is too short to tell."""
        if len(history) < FEWEST:
            return None
        for name, ours, past in (
            ("computing", self.compute_ns, [past.compute_ns for past in history]),
            ("copying", self.copy_ns, [past.copy_ns for past in history]),
        ):
            usual, excess = median(past), usual_excess(past)
            if ours > excess * usual:
                return (
                    f"{name} took {ours / usual:.1f} times as long as usual on this device, "
                    f"where it varies up to {excess:.1f} times"
                )
        return None

    def faster_of(self, other: Reading) -> Reading:
        """The faster run of each kind: what took long in it took long in both readings."""
        return Reading(min(self.compute_ns, other.compute_ns), min(self.copy_ns, other.copy_ns))

    @classmethod
    def listed(cls, facts: Mapping[str, str]) -> list[Reading]:
        """The readings that a runner recorded as facts (`as_facts`); none where they are not understood."""
        columns = [facts.get(name, "").split() for name in (COMPUTE_FACT, COPY_FACT)]
        if not all(word.isdecimal() for column in columns for word in column):
            return []
        return [cls(int(compute), int(copy)) for compute, copy in zip(*columns, strict=False)][:HISTORY]


def usual_excess(past: Sequence[int]) -> float:
    """How many times its median a duration may take that varies as these do, at least `SLOWER`."""
    logs = [math.log(max(duration, 1)) for duration in past]
    centre = median(logs)
    deviation = median(abs(value - centre) for value in logs) / _MAD_OF_NORMAL
    return max(SLOWER, math.exp(UNUSUAL * deviation))


def why_vague(history: Sequence[Reading]) -> str | None:
    """Say why a history cannot tell a disturbance from what is usual; None where it can."""
    if len(history) < FEWEST:
        return f"{len(history)} earlier readings; it needs {FEWEST}"
    excess = max(
        usual_excess([past.compute_ns for past in history]), usual_excess([past.copy_ns for past in history])
    )
    return f"its time on this device varies up to {excess:.1f} times" if excess > VAGUE else None


def as_facts(readings: Sequence[Reading]) -> dict[str, str]:
    """Readings as facts of a result."""
    return {
        COMPUTE_FACT: " ".join(str(one.compute_ns) for one in readings),
        COPY_FACT: " ".join(str(one.copy_ns) for one in readings),
    }


def _fastest(work: Callable[[], object]) -> int:
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - started)
    return min(times)


def load(path: Path, device_id: str) -> list[Reading]:
    """The readings of a device, the oldest first; none where the file is missing or not understood."""
    return [Reading(*pair) for pair in _all(path).get(device_id, [])]


def keep(path: Path, device_id: str, readings: Sequence[Reading]) -> None:
    """Add readings to a device's history."""
    known = _all(path)
    past = known.get(device_id, [])
    known[device_id] = [*past, *((one.compute_ns, one.copy_ns) for one in readings)][-HISTORY:]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(known))
    temporary.replace(path)


def _all(path: Path) -> dict[str, list[tuple[int, int]]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
