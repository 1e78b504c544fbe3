"""The flags of a measurement, one for each kind: a result with a flag is never shown without it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.wire.messages import Measurement

_PROCESS = re.compile(r"process \d+: (?P<name>[a-z_]+)(?:: |$)")
"""How a measured process's flag begins; other warnings, a delegate's own, have no such form."""


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


def flags_of(measurement: Measurement) -> tuple[Flag, ...]:
    """Return the flags, the most frequent first; a warning of another form counts as `warning`."""
    counts: dict[str, int] = {}
    for warning in measurement.warnings:
        found = _PROCESS.match(warning)
        name = "warning" if found is None else found["name"]
        counts[name] = counts.get(name, 0) + 1
    stated = measurement.settings.get("processes", "")
    processes = max([int(stated) if stated.isdecimal() else 0, *counts.values()], default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Flag(name, count, processes) for name, count in ordered)
