"""Stores events of cells in the transaction of the change that each describes, and queries them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.results.events import EventKind


@dataclass(frozen=True, slots=True)
class CellEvent:
    """Something that happened to a cell. `no` grows with every event of the farm."""

    no: int
    at: datetime
    cell_id: str
    kind: EventKind
    text: str


def newest(session: Session) -> int:
    """Return the number of the last event; 0 before the first."""
    return session.exec(select(func.max(tables.Event.no))).one() or 0


def of_campaign(session: Session, campaign_no: int, after: int, most: int | None = None) -> list[CellEvent]:
    """Return the events of a campaign's cells after event number `after`, oldest first, at most `most`."""
    query = select(tables.Event).where(tables.Event.campaign_no == campaign_no, col(tables.Event.no) > after)
    return _events(session.exec(query.order_by(col(tables.Event.no)).limit(most)).all())


def finished_after(session: Session, campaign_no: int, after: int) -> int:
    """Count the cells of a campaign that end in events after event number `after`."""
    wanted = (tables.Event.campaign_no == campaign_no, tables.Event.kind == "finished")
    return tables.count(session, tables.Event, *wanted, col(tables.Event.no) > after)


def of_cell(session: Session, cell_id: str, after: int = 0) -> list[CellEvent]:
    """Return the events of a cell after event number `after`, oldest first."""
    query = select(tables.Event).where(tables.Event.cell_id == cell_id, col(tables.Event.no) > after)
    return _events(session.exec(query.order_by(col(tables.Event.no))).all())


def _events(rows: Sequence[tables.Event]) -> list[CellEvent]:
    return [CellEvent(row.no or 0, row.at, row.cell_id, cast(EventKind, row.kind), row.text) for row in rows]


def add(turn: Turn, cell: tables.Cell, kind: EventKind, text: str, now: datetime) -> None:
    """Record an event of a cell."""
    row = {"at": now, "campaign_no": cell.campaign_no, "cell_id": cell.cell_id, "kind": kind, "text": text}
    # Nothing in a turn reads events, so that all of them go in one statement at its end.
    turn.insert_at_end(tables.Event, [row])
