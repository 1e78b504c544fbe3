"""What `farm doctor` and `farm db check` report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one part of the farm. `fix` is empty where `ok`."""

    name: str
    ok: bool
    found: str
    fix: str = ""
