"""Measures for how long devices stood idle although a cell could have started there."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from orchestrator.results.facts import AttemptBegun, AttemptEnded


class IdleGaps:
    """Remembers when each exclusion group became free last; groups are paths that begin with the agent."""

    def __init__(self) -> None:
        """Nothing is known before the first attempt of this process has ended."""
        self._freed: dict[str, dict[str, datetime]] = defaultdict(dict)

    def end(self, ended: AttemptEnded) -> None:
        """Note that a group is free."""
        self._freed[_host(ended.group)][ended.group] = ended.at

    def begin(self, begun: AttemptBegun) -> float | None:
        """Seconds from when device and cell were both free to when the device got the cell.

        None where no attempt of this process has ended on the silicon that it takes.
        """
        known = self._freed[_host(begun.group)].items()
        freed = [at for group, at in known if _conflict(group, begun.group)]
        if not freed:
            return None
        return max(0.0, (begun.at - max(*freed, begun.ready_at)).total_seconds())


def _host(group: str) -> str:
    return group.partition("/")[0]


def _conflict(one: str, other: str) -> bool:
    """Whether two groups cannot be busy at the same time: they are equal, or one contains the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
