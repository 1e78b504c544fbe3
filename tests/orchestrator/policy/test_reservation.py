"""A user holds a share of a lab's devices, each for a while, and others come between."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.errors import UsageError
from orchestrator.policy.reservation import PAUSE_OF_USERS, Reservation, require_share

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Row:
    device_id: str
    exclusion_group: str = "g"
    reserved_by: str | None = None
    reserved_until: datetime | None = None
    reserved_text: str | None = None


def held(by: str, *devices: str) -> list[Reservation]:
    return [Reservation(device, device, by, NOW + HOUR) for device in devices]


@pytest.mark.parametrize(
    ("row", "reservations", "devices", "until", "refused"),
    [
        (Row("a"), [], 1, NOW + HOUR, None),
        (Row("a"), held("bob", "b", "c"), 4, NOW + HOUR, None),
        (Row("a"), held("ana", "b"), 4, NOW + HOUR, None),
        (Row("a"), held("ana", "b"), 3, NOW + HOUR, "ana has b already, of 3 devices.* may hold 1"),
        (Row("a"), held("ana", "b", "c"), 5, NOW + HOUR, "ana has b, c already, of 5 devices.* may hold 2"),
        (Row("a"), held("ana", "a"), 1, NOW + HOUR / 2, None),
        (Row("a"), held("ana", "a"), 1, NOW + 2 * HOUR, "its holder may end that earlier"),
        (Row("a", "g", "ana", NOW - HOUR / 2), [], 1, NOW + HOUR, "others come first until 12:30 UTC"),
        (Row("a", "g", "ana", NOW - PAUSE_OF_USERS), [], 1, NOW + HOUR, None),
        (Row("a", "g", "bob", NOW - HOUR / 2), [], 1, NOW + HOUR, None),
    ],
)
def test_no_user_keeps_a_lab_or_a_device_for_ever(
    row: Row, reservations: list[Reservation], devices: int, until: datetime, refused: str | None
) -> None:
    if refused is None:
        require_share(row, reservations, devices, "ana", until, NOW)
    else:
        with pytest.raises(UsageError, match=refused):
            require_share(row, reservations, devices, "ana", until, NOW)
