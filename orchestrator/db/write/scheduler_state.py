"""The row that the scheduling process writes about itself."""

from __future__ import annotations

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read.scheduler_state import SchedulerState


def write(turn: Turn, state: SchedulerState) -> None:
    """Replace the row."""
    row = turn.get(tables.Scheduler, 1)
    values = {name: getattr(state, name) for name in SchedulerState.__slots__}
    if row is None:
        turn.add(tables.Scheduler(no=1, **values))
    else:
        row.sqlmodel_update(values)
