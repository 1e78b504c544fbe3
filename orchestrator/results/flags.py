"""The flags of a measurement, one for each kind: a result with a flag is never shown without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent.wire.measurement import Measurement

Severity: TypeAlias = Literal["major", "minor"]

_PROCESS = re.compile(r"process \d+: (?P<name>[a-z_]+)(?:: |$)")
"""How a measured process's flag begins; other warnings, a delegate's own, have no such form."""

IMPORTED = "imported: "
"""How the flag of a result begins that another tool measured."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One kind of flag, raised by `count` of `processes` measured processes."""

    name: str
    count: int
    processes: int

    @property
    def text(self) -> str:
        """`drift 1/3`."""
        return f"{self.name} {self.count}/{self.processes}"

    @property
    def is_major(self) -> bool:
        """Whether more than half of the processes raised it: then it is in the figure itself, and in fewer
        it widens the interval."""
        return 2 * self.count > self.processes


def flags_of(measurement: Measurement) -> tuple[Flag, ...]:
    """Return the flags, the most frequent first; a warning of another form counts as `warning`."""
    counts: dict[str, int] = {}
    for warning in measurement.warnings:
        found = _PROCESS.match(warning)
        other = "imported" if warning.startswith(IMPORTED) else "warning"
        name = other if found is None else found["name"]
        counts[name] = counts.get(name, 0) + 1
    stated = measurement.settings.get("processes", "")
    processes = max([int(stated) if stated.isdecimal() else 0, *counts.values()], default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Flag(name, count, processes) for name, count in ordered)


def flags_text(measurement: Measurement) -> str:
    """Write `major: preempted 3/3, drift 1/3`, by the gravest of them; empty where there is none."""
    flags = flags_of(measurement)
    if not flags:
        return ""
    return f"{severity(flags)}: " + ", ".join(flag.text for flag in flags)


def severity(flags: Sequence[Flag]) -> Severity:
    """The severity of several flags: that of the gravest."""
    return "major" if any(flag.is_major for flag in flags) else "minor"
