"""A running campaign on the terminal: a line per finished cell, and one that says what happens now."""

from __future__ import annotations

import time

from orchestrator.cli.comparison import STRUCK_OUT, latency
from orchestrator.cli.output import StatusLine
from orchestrator.events import FarmEvent
from orchestrator.results.records import CellRecord

_SCROLLED = {"retry", "interrupted", "late"}


class Progress:
    """Called with each event of a campaign."""

    def __init__(self, status: StatusLine) -> None:
        self._status = status
        self._started_at = time.monotonic()

    def __call__(self, event: FarmEvent) -> None:
        """Show one event."""
        name = f"{event.cell.model} on {event.cell.delegate}@{event.cell.device}"
        if event.kind == "finished":
            self._status.event(f"[{event.done}/{event.total}] {name}: {outcome(event.cell)}")
        elif event.kind in _SCROLLED:
            self._status.event(f"[{event.done}/{event.total}] {name}: {event.kind}: {event.text}")
        elif event.kind != "reused":
            elapsed_s = time.monotonic() - self._started_at
            eta = "" if event.eta_s is None else f" (about {_clock(event.eta_s)} left)"
            what = event.text or event.kind
            self._status.update(f"{event.done}/{event.total} {_clock(elapsed_s)}{eta} {name}: {what}")


def outcome(cell: CellRecord) -> str:
    """How a cell ended, on one line."""
    if cell.struck_out:
        return STRUCK_OUT
    if cell.status == "done":
        return latency(cell)
    return cell.status if cell.reason is None else f"{cell.status}: {cell.reason.text}"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
