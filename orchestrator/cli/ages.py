"""Reads lengths of time as options give them: 30m, 2h, 90d, 8w."""

from __future__ import annotations

import re
from datetime import timedelta

from orchestrator.errors import UsageError

_FORM = re.compile(r"([1-9]\d{0,5})(h|d|w)")
_HOURS = {"h": 1, "d": 24, "w": 168}


def read_age(text: str, option: str) -> timedelta:
    """Read hours, days or weeks. Raises `UsageError`, which names the option."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text}: expected hours, days or weeks: 12h, 90d, 8w")
    return timedelta(hours=int(found[1]) * _HOURS[found[2]])


_LENGTH = re.compile(r"(\d{1,6})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_length(text: str, option: str) -> timedelta:
    """Read seconds, minutes, hours or days. Raises `UsageError`, which names the option."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text}: expected seconds, minutes, hours or days: 30s, 30m, 2h, 1d")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
