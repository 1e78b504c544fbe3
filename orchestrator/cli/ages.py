"""Reads lengths of time as options give them: 30m, 2h, 90d, 8w."""

from __future__ import annotations

import re
from datetime import timedelta

from orchestrator.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def read_age(text: str, option: str) -> timedelta:
    """Read hours, days or weeks. Raises `UsageError`, which names the option."""
    return _read(text, option, r"([1-9]\d{0,5})([hdw])", "hours, days or weeks: 12h, 90d, 8w")


def read_length(text: str, option: str) -> timedelta:
    """Read seconds, minutes, hours or days. Raises `UsageError`, which names the option."""
    return _read(text, option, r"(\d{1,6})([smhd])", "seconds, minutes, hours or days: 30s, 30m, 2h, 1d")


def _read(text: str, option: str, form: str, expected: str) -> timedelta:
    found = re.fullmatch(form, text)
    if found is None:
        raise UsageError(f"{option} {text}: expected {expected}")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
