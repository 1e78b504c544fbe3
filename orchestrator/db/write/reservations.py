"""Stores who has a device for a while, and gives it back."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import func
from sqlmodel import col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read import reservations
from orchestrator.errors import UsageError
from orchestrator.policy.reservation import Reservation, in_the_way


def reserve(turn: Turn, device: tables.Device, by: str, until: datetime, reason: str, now: datetime) -> int:
    """Reserve a device, or change the end of a reservation that the same one has.

    Returns how many attempts of others still run where they exclude it. Raises `UsageError` where another
    one's reservation is in the way.
    """
    other = in_the_way(reservations.of_host(turn, device.agent_id, now), device.exclusion_group, by)
    if other is not None:
        where = "" if other.device_id == device.device_id else f"{other.device_id}, which excludes it, "
        raise UsageError(
            f"{device.device_id} cannot be reserved: {where}is reserved {other}; its holder or an "
            f"administrator ends that: farm devices release {other.device_id}"
        )
    device.reserved_by, device.reserved_until, device.reserved_text = by, until, reason or None
    return _running_beside(turn, Reservation(device.device_id, device.exclusion_group, by, until))


def release(device: tables.Device) -> None:
    """End the reservation of a device."""
    device.reserved_by = device.reserved_until = device.reserved_text = None


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
