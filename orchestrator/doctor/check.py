"""The unit of the reports of `farm doctor` and `farm db check`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """The finding about one part of the farm. `fix` is empty where `ok`."""

    name: str
    ok: bool
    found: str
    fix: str = ""
