"""One look at one part of the farm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One part of the farm. `fix` is empty where it is well."""

    name: str
    ok: bool
    found: str
    fix: str = ""
