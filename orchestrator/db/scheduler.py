"""Who schedules: one row, written by that process alone, read by everybody who wonders."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session

from orchestrator.db import tables

NO_BROKER, BROKER_UP, BROKER_DOWN = "none", "up", "down"


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The process that schedules, or did. `broker`: none | up | down; `broker_text`: why it is down."""

    host: str
    pid: int
    since_at: datetime
    beat_at: datetime
    broker: str
    broker_text: str


def write(session: Session, state: SchedulerState) -> None:
    """Replace the row."""
    row = session.get(tables.Scheduler, 1)
    said = {name: getattr(state, name) for name in SchedulerState.__slots__}
    if row is None:
        session.add(tables.Scheduler(no=1, **said))
    else:
        row.sqlmodel_update(said)


def read(session: Session) -> SchedulerState | None:
    """The row; None where no lab ever ran on this database."""
    row = session.get(tables.Scheduler, 1)
    if row is None:
        return None
    return SchedulerState(row.host, row.pid, row.since_at, row.beat_at, row.broker, row.broker_text)
