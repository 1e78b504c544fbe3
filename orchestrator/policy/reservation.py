"""Reservations of devices: who holds one until when, and whose cells it keeps away. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from orchestrator.errors import UsageError
from orchestrator.policy.assign import Occupancy

LONGEST_RESERVATION: Final = timedelta(days=7)
"""The longest time of an administrator's reservation. Chosen: whoever needs a device for longer takes it out
of work; a forgotten one costs a lab a week at most.
"""

LONGEST_OF_USERS: Final = timedelta(days=1)
"""The longest time of any other user's. Chosen: a day of work at a device; users share what a lab has."""

SHORTEST_RESERVATION: Final = timedelta(minutes=1)
"""The shortest time of one reservation. Chosen: in less nobody does anything with a device by hand."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A device that takes new jobs of one submitter alone until a moment. `by`: as a campaign's submitter."""

    device_id: str
    exclusion_group: str
    by: str
    until: datetime
    reason: str = ""

    def __str__(self) -> str:
        """`by ana until 2026-02-01 14:30 UTC (new driver)`."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"by {self.by} until {self.until:%Y-%m-%d %H:%M} UTC{reason}"


def require_length(length: timedelta, *, administrator: bool) -> None:
    """Raise `UsageError` for a reservation that is too short, or longer than this user's may be."""
    longest = LONGEST_RESERVATION if administrator else LONGEST_OF_USERS
    if not SHORTEST_RESERVATION <= length <= longest:
        more = "" if administrator else f", an administrator's {LONGEST_RESERVATION.days} days"
        raise UsageError(
            f"a reservation lasts from 1 minute to {longest.days} day{'s' if longest.days > 1 else ''}{more}"
        )


class Reservable(Protocol):
    """The columns of a device that tell of its reservation."""

    @property
    def device_id(self) -> str:
        """The id."""

    @property
    def exclusion_group(self) -> str:
        """The path of what it shares silicon with."""

    @property
    def reserved_by(self) -> str | None:
        """Who reserved it last."""

    @property
    def reserved_until(self) -> datetime | None:
        """Until when."""

    @property
    def reserved_text(self) -> str | None:
        """The purpose that the user gave."""


def reservation_of(device: Reservable, now: datetime) -> Reservation | None:
    """Return the reservation of a device that is in force now."""
    if device.reserved_by is None or device.reserved_until is None or device.reserved_until <= now:
        return None
    return Reservation(
        device.device_id,
        device.exclusion_group,
        device.reserved_by,
        device.reserved_until,
        device.reserved_text or "",
    )


def in_force(devices: Iterable[Reservable], now: datetime) -> list[Reservation]:
    """Return the reservations of these devices that are in force now."""
    return [found for device in devices if (found := reservation_of(device, now)) is not None]


def in_the_way(reservations: Iterable[Reservation], group: str, user: str) -> Reservation | None:
    """Return the first reservation of another user that keeps a user's cells from an exclusion group.

    A reservation holds the group of its device, as an attempt there would: nothing of others runs on the
    device, nor on silicon that excludes it.
    """
    others = (one for one in reservations if one.by != user)
    return next((one for one in others if not Occupancy([one.exclusion_group]).free(group)), None)
