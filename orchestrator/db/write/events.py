"""The feed: what happened, written in the same transaction as what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.results.events import EventKind


@dataclass(frozen=True, slots=True)
class Happening:
    """One row of the feed."""

    no: int
    cell_id: str
    kind: EventKind
    text: str


def add(session: Session, cell: tables.Cell, kind: EventKind, text: str, now: datetime) -> None:
    """Tell what happened to a cell."""
    row = {"at": now, "campaign_no": cell.campaign_no, "cell_id": cell.cell_id, "kind": kind, "text": text}
    turn.gather(session, tables.Event, [row])


def newest(session: Session) -> int:
    """Number of the last happening; 0 before the first."""
    return session.exec(select(func.max(tables.Event.no))).one() or 0


def since(session: Session, campaign_no: int, no: int) -> Sequence[Happening]:
    """What happened to a campaign after number `no`, in order."""
    rows = session.exec(
        select(tables.Event)
        .where(tables.Event.campaign_no == campaign_no, col(tables.Event.no) > no)
        .order_by(col(tables.Event.no))
    )
    return [Happening(row.no or 0, row.cell_id, cast(EventKind, row.kind), row.text) for row in rows]
