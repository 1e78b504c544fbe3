"""Queries the reservations of devices that are in force."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.policy.reservation import Reservation, in_force


def all_of_them(session: Session, now: datetime) -> Sequence[Reservation]:
    """Every reservation in force now, by device."""
    query = select(tables.Device).where(col(tables.Device.reserved_until) > now)
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)


def of_host(session: Session, agent_id: str, now: datetime) -> Sequence[Reservation]:
    """Those of one agent's devices."""
    query = select(tables.Device).where(
        tables.Device.agent_id == agent_id, col(tables.Device.reserved_until) > now
    )
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)
