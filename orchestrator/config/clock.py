"""The clock of the orchestrator's records."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present time in UTC, for moments that are stored or shown; never for durations."""
    return datetime.now(UTC)
