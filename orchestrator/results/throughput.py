"""Says in words what a throughput pass counted."""

from __future__ import annotations

from orchestrator.results import format as text
from orchestrator.results.records import CellRecord


def throughput_line(cell: CellRecord) -> str | None:
    """The rate and what it rests on, or why there is none; None where it was not asked for, or the output is
    wrong.
    """
    found = None if cell.measurement is None or cell.struck_out else cell.measurement.throughput
    if found is None:
        return None
    if found.per_second is None or found.runs is None or found.seconds is None:
        return f"none: {found.missing.get('per_second', 'not recorded')}"
    counted = f"{text.count(found.runs)} runs in {text.share(found.seconds)} s"
    return f"{text.rate(found.per_second)} runs/s, {text.count(found.in_flight)} in flight ({counted})"
