"""The clock of the orchestrator's records."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present time in UTC, to store, to compare with stored times, or to show; never for
    durations.
    """
    return datetime.now(UTC)
