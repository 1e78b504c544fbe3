"""The signs and words of grades and verdicts, the same on terminals and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from orchestrator.results import format as text
from orchestrator.results.grading import Graded
from orchestrator.results.speedups import SpeedUp, Verdict

SIGNS: Final[Mapping[Verdict, str]] = {
    "faster": "▲", "slower": "▼", "same": "=", "open": "·", "unpaired": "≈", "void": "",
}  # fmt: skip
"""The sign of each verdict; a void ratio is not compared."""

WORDS: Final[Mapping[Verdict, str]] = {
    "faster": "faster", "slower": "slower", "same": "the same", "open": "open",
    "unpaired": "not paired", "void": "not compared",
}  # fmt: skip
"""The same in words."""


def grade_text(graded: Graded) -> str:
    """Write a grade with its numbers: `fair: known to 6 % (h 5 % + b 1 %)`, and its reason."""
    reason = f": {graded.reason}" if graded.reason else ""
    if graded.grade == "void":
        return f"void{reason}"
    if graded.half is None or graded.known_to is None:
        return f"{graded.grade}: no interval"
    numbers = f"h {_percent(graded.half)} + b {_percent(graded.allowance)}"
    return f"{graded.grade}: known to {_percent(graded.known_to)} ({numbers}){reason.replace(':', ';', 1)}"


def short_grade(graded: Graded) -> str:
    """Write a grade with the one number that decides it: `fair ±6 %`."""
    if graded.grade == "void" or graded.known_to is None:
        return graded.grade
    return f"{graded.grade} ±{_percent(graded.known_to)}"


def known_percent(graded: Graded | None) -> str:
    """Write how well a figure is known, `6 %`; empty without an interval."""
    return "" if graded is None or graded.known_to is None else _percent(graded.known_to)


def _percent(logarithm: float) -> str:
    return text.percent(math.expm1(logarithm))


def decides(found: SpeedUp) -> str:
    """Say how many blocks would decide an open ratio."""
    if found.verdict != "open":
        return ""
    if found.blocks_needed is None:
        return "too near to call, however many blocks there are"
    return f"about {found.blocks_needed} blocks would decide it"
