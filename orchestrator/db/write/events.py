"""Stores events of cells, in the same transaction as the change that each describes."""

from __future__ import annotations

from datetime import datetime

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.results.events import EventKind


def add(turn: Turn, cell: tables.Cell, kind: EventKind, text: str, now: datetime) -> None:
    """Record an event of a cell."""
    row = {"at": now, "campaign_no": cell.campaign_no, "cell_id": cell.cell_id, "kind": kind, "text": text}
    turn.insert_at_end(tables.Event, [row])
