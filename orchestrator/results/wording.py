"""The signs and words of grades and verdicts, the same on terminals and pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results.grading import Graded
from orchestrator.results.speedups import SpeedUp, Verdict

SIGNS: Final[Mapping[Verdict, str]] = {
    "faster": "▲", "slower": "▼", "same": "=", "open": "·", "unpaired": "≈", "void": "",
}  # fmt: skip
"""The sign of each verdict; a void ratio is not compared."""

WORDS: Final[Mapping[Verdict, str]] = {
    "faster": "faster", "slower": "slower", "same": "the same", "open": "open",
    "unpaired": "unpaired", "void": "not compared",
}  # fmt: skip
"""The same in words."""


_FACTOR = 1.1
"""Factor from which on a ratio below 1 without a verdict is written as slower: `0.97x`, but `2.0x slower`."""

_NEAR_KNOWN_TO = 0.01
"""How well a mean near 1 is taken to be known, so that it has two decimals."""

_STOPPED: Final = {
    "target": "the intervals are as narrow as asked for",
    "decided": "every verdict is decided",
    "blocks": "all blocks were measured",
    "budget": "the budget was spent",
    "time": "the time limit was reached",
    "cancelled": "ended early by a cancel",
}
"""Why no further block was measured, in words."""


def ratio_text(found: SpeedUp) -> str:
    """Write a ratio as a factor: how much faster, or how much slower where the sign or the text says so."""
    known_to = None if found.half is None else found.half + found.allowance
    slower = found.verdict == "slower" or (found.verdict != "same" and found.ratio * _FACTOR < 1.0)
    factor = text.known(1.0 / found.ratio if slower else found.ratio, known_to)
    return f"{factor}x slower" if slower and found.verdict != "slower" else f"{factor}x"


def factor_text(ratio: float) -> str:
    """Write a mean ratio: `1.15x`, and `5.0x slower` of one below 1."""
    near = 1.0 / _FACTOR < ratio < _FACTOR
    factor = text.known(max(ratio, 1.0 / ratio), _NEAR_KNOWN_TO if near else None)
    return f"{factor}x" if ratio >= 1.0 or float(factor) == 1.0 else f"{factor}x slower"


def grade_text(graded: Graded) -> str:
    """Write a grade with its numbers: `fair: known to 6 % (h 5 % + b 1 %)`; a void one with its reason."""
    if graded.grade == "void":
        return f"void: {graded.reason}" if graded.reason else "void"
    if graded.half is None or graded.known_to is None:
        return f"{graded.grade}: no interval"
    numbers = f"h {_percent(graded.half)} + b {_percent(graded.allowance)}"
    return f"{graded.grade}: known to {_percent(graded.known_to)} ({numbers})"


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
    if found.stays_open:
        return f"{found.stays_open}, however many blocks there are"
    return f"about {found.blocks_needed} blocks would decide it"


def measured_text(m: Measurement) -> str:
    """Say how a cell was measured; of results of older agents the samples alone."""
    quality = m.quality
    if quality is None or not quality.blocks:
        return f"{text.count(m.samples)} samples"
    turns = "by turns" if quality.alternating else "one delegate after the other"
    again = f"; {quality.repeated_blocks} of {quality.blocks} blocks repeated"
    sizes = sorted({block.rounds for block in m.blocks})
    each = f" ({sizes[0]} to {sizes[-1]} a block)" if len(sizes) > 1 else ""
    rounds = f"; {quality.repeated} of {quality.rounds} rounds{each} repeated" if quality.rounds else ""
    stopped = f"; stopped: {_STOPPED[quality.stopped]}" if quality.stopped else ""
    rounds = again * bool(quality.repeated_blocks) + rounds
    return f"{quality.blocks} blocks, {turns}{rounds}; {text.count(m.samples)} samples{stopped}"
