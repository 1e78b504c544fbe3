"""Keeps the times of a calibration workload of known size on a device, and finds unusual ones.

The runner does the work (`agent.runner.turns.calibration`). It delays a measurement or is a fact beside it;
no figure is ever scaled by it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from runtime.common.durable import write_atomically

COMPUTE_FACT: Final = "workload_compute_ns"
COPY_FACT: Final = "workload_copy_ns"
"""Facts of a result: the readings in their order, separated by blanks."""

HISTORY: Final = 50
"""Readings that are kept for a device. More would follow a machine that becomes slower too late."""

FEWEST: Final = 20
"""Readings, one for each block, from which on a history is one. Those of one attempt resemble each other: 20
are of at least two attempts at `standard`, of four at `quick`. With fewer, a spread is not known."""

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
    """One run of each kind in ns: a matrix product, and a copy through memory."""

    compute_ns: int
    copy_ns: int

    def slower_than(self, history: "Sequence[Reading]") -> str | None:
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

    @classmethod
    def typical(cls, readings: "Sequence[Reading]") -> "Reading":
        """Return the median of each kind: one reading may have met an interrupt."""
        return cls(
            int(median(one.compute_ns for one in readings)), int(median(one.copy_ns for one in readings))
        )

    @classmethod
    def listed(cls, facts: Mapping[str, str]) -> "list[Reading]":
        """Return the readings that a runner recorded (`as_facts`); none if they are not understood."""
        columns = [facts.get(name, "").split() for name in (COMPUTE_FACT, COPY_FACT)]
        if not all(word.isdecimal() for column in columns for word in column):
            return []
        return [cls(int(compute), int(copy)) for compute, copy in zip(*columns, strict=False)][:HISTORY]


def usual_excess(past: Sequence[int]) -> float:
    """Return how many times its median a duration that varies like these may take, at least `SLOWER`."""
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
    """Return readings as facts of a result."""
    return {
        COMPUTE_FACT: " ".join(str(one.compute_ns) for one in readings),
        COPY_FACT: " ".join(str(one.copy_ns) for one in readings),
    }


def load(path: Path, device_id: str) -> list[Reading]:
    """Return the readings of a device, oldest first; none if the file is missing or not understood."""
    return [Reading(*pair) for pair in _all(path).get(device_id, [])]


def keep(path: Path, device_id: str, readings: Sequence[Reading]) -> None:
    """Add readings to a device's history."""
    known = _all(path)
    past = known.get(device_id, [])
    known[device_id] = [*past, *((one.compute_ns, one.copy_ns) for one in readings)][-HISTORY:]
    # Not synchronised: a history that a power cut spoils is none, and begins anew.
    write_atomically(path, json.dumps(known).encode(), sync=False)


def _all(path: Path) -> dict[str, list[tuple[int, int]]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
