"""Reservations of devices: who holds one until when, and whose cells it keeps away. Pure."""

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

PAUSE_OF_USERS: Final = timedelta(hours=1)
"""Time after a user's reservation without another one of that user on the device. Chosen: long enough for the
jobs of others that waited; without it one user would keep a device for ever, a day at a time."""

SHARE_OF_USERS: Final = 0.5
"""Share of a lab's devices that one user may hold at a time, one at least. Larger leaves others less."""


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


def length_of(seconds: float, *, administrator: bool) -> timedelta:
    """Return how long a reservation lasts. Raises `UsageError` for less or more than this user's may."""
    longest = LONGEST_RESERVATION if administrator else LONGEST_OF_USERS
    # In seconds: of NaN, or of millions of years, there is no `timedelta`.
    if not SHORTEST_RESERVATION.total_seconds() <= seconds <= longest.total_seconds():
        more = "" if administrator else f", an administrator's {LONGEST_RESERVATION.days} days"
        raise UsageError(
            f"a reservation lasts from 1 minute to {longest.days} day{'s' if longest.days > 1 else ''}{more}"
        )
    return timedelta(seconds=seconds)


def require_share(
    device: "Reservable", held: Iterable[Reservation], devices: int, by: str, until: datetime, now: datetime
) -> None:
    """Raise `UsageError` where a user who is no administrator would keep a device, or a lab, from all others.

    `held`: all reservations in force; `devices`: how many the lab has.
    """
    own = [one for one in held if one.by == by]
    current = next((one for one in own if one.device_id == device.device_id), None)
    # Else the longest time, and the pause after it, would be evaded by one extension after another.
    if current is not None and until > current.until:
        raise UsageError(
            f"{device.device_id} is reserved {current}; its holder may end that earlier, an administrator "
            "later"
        )
    most = max(1, int(SHARE_OF_USERS * devices))
    if current is None and len(own) >= most:
        names = ", ".join(one.device_id for one in own)
        raise UsageError(
            f"{by} has {names} already, of {devices} devices, and a user may hold {most} at a time: farm "
            "devices release NAME, or ask an administrator"
        )
    ended = device.reserved_until
    if current is None and device.reserved_by == by and ended is not None and now < ended + PAUSE_OF_USERS:
        raise UsageError(
            f"{device.device_id} was reserved by {by} until {ended:%H:%M} UTC; others come first until "
            f"{ended + PAUSE_OF_USERS:%H:%M} UTC"
        )


class Reservable(Protocol):
    """The columns of a device that tell of its reservation: who reserved it last, until when, and the purpose
    that the user gave. `exclusion_group`: the path of what it shares silicon with.
    """

    device_id: str
    exclusion_group: str
    reserved_by: str | None
    reserved_until: datetime | None
    reserved_text: str | None


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
