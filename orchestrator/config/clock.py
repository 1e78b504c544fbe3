"""The one clock of the orchestrator's records."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """This moment in UTC, to be stored, compared with what is stored, or shown; never for durations."""
    return datetime.now(UTC)
