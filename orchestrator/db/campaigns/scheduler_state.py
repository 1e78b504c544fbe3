"""Queries and stores the one row in which the process that schedules describes itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn

NO_BROKER, BROKER_UP, BROKER_DOWN = "none", "up", "down"
STOPPED = "stopped"
"""In place of the broker's state: the process ended normally, and none checks the broker now."""


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The process that schedules, or did. `broker`: none | up | down | stopped; `broker_text`: why it
    is down; `store`: the store that has the farm's files.
    """

    host: str
    pid: int
    since_at: datetime
    beat_at: datetime
    broker: str
    broker_text: str
    store: str


def read(session: Session) -> SchedulerState | None:
    """Return the row; None if no lab ever ran on this database."""
    row = session.get(tables.Scheduler, 1)
    if row is None:
        return None
    values = {name: getattr(row, name) for name in SchedulerState.__slots__}
    return SchedulerState(**values)


def write(turn: Turn, state: SchedulerState) -> None:
    """Replace the row."""
    row = turn.get(tables.Scheduler, 1)
    values = {name: getattr(state, name) for name in SchedulerState.__slots__}
    if row is None:
        turn.add(tables.Scheduler(no=1, **values))
    else:
        row.sqlmodel_update(values)
