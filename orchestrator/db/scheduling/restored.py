"""Prepares a copy of the database for agents that have gone on since it was made."""

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import update
from sqlmodel import col

from orchestrator.db import tables
from orchestrator.db.engine.copies import Copy

_FIRST_EPOCH_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment from which seconds are counted: at a restoration, their number is the epoch of each device.
Chosen: before the first release. Later, a device may have had more attempts than that, and refuses a job;
earlier, the number passes what agents may claim to have seen (`bounded.MAX_SEEN_EPOCH`) before 2060.
"""


def prepare(copy: Copy, now: datetime) -> None:
    """Have no cell suffer for what happened since the copy was made. Raises `FarmError`.

    The attempts under way in it may have ended, with a result that is confirmed and so is gone: they count
    as stopped by the farm. Their devices may have had others: no epoch is used again.
    """
    copy.change(update(tables.Attempt).where(tables.IS_LIVE).values(stop_asked=True))
    # A device begins fewer attempts than one a second: it has seen no epoch as large.
    epoch = int((now - _FIRST_EPOCH_AT).total_seconds())
    copy.change(update(tables.Device).where(col(tables.Device.epoch) < epoch).values(epoch=epoch))
