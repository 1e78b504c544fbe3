"""Queries and stores the reservations of devices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UsageError
from orchestrator.policy.reservation import Reservation, in_force, in_the_way, require_share


def all_of_them(session: Session, now: datetime) -> Sequence[Reservation]:
    """Every reservation in force now, by device."""
    query = select(tables.Device).where(col(tables.Device.reserved_until) > now)
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)


def of_host(session: Session, agent_id: str, now: datetime) -> Sequence[Reservation]:
    """Return the reservations of one agent's devices that are in force."""
    query = select(tables.Device).where(
        tables.Device.agent_id == agent_id, col(tables.Device.reserved_until) > now
    )
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)


def reserve(turn: Turn, device: tables.Device, by: str, until: datetime, reason: str, now: datetime) -> int:
    """Reserve a device, or change the end of a reservation that the same one has.

    Returns how many attempts of others still run where they exclude it. Raises `UsageError` where another
    one's reservation is in the way.
    """
    other = in_the_way(of_host(turn, device.agent_id, now), device.exclusion_group, by)
    if other is not None:
        where = "" if other.device_id == device.device_id else f"{other.device_id}, which excludes it, "
        raise UsageError(
            f"{device.device_id} cannot be reserved: {where}is reserved {other}; its holder or an "
            f"administrator ends that: farm devices release {other.device_id}"
        )
    device.reserved_by, device.reserved_until, device.reserved_text = by, until, reason or None
    return _running_beside(turn, Reservation(device.device_id, device.exclusion_group, by, until))


def require_share_of(turn: Turn, device: tables.Device, by: str, until: datetime, now: datetime) -> None:
    """Raise `UsageError` where this user may not reserve the device: `policy.reservation.require_share`."""
    devices = turn.exec(select(func.count()).select_from(tables.Device)).one()
    require_share(device, all_of_them(turn, now), devices, by, until, now)


def release(device: tables.Device, now: datetime) -> None:
    """End the reservation of a device; whose it was stays known, for the pause before the next one."""
    device.reserved_until, device.reserved_text = now, None


def _running_beside(turn: Turn, held: Reservation) -> int:
    rows = turn.exec(
        select(tables.Device.exclusion_group, tables.Campaign.submitted_by, func.count())
        .join(tables.Attempt, col(tables.Attempt.device_id) == tables.Device.device_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_LIVE)
        .group_by(tables.Device.exclusion_group, tables.Campaign.submitted_by)
    )
    return sum(count for group, user, count in rows if in_the_way([held], group, user) is not None)
