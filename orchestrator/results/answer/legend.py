"""The lines below a table: the signs that occur, what is open and how it is decided, and the footnotes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orchestrator.results.answer import entries
from orchestrator.results.answer.entries import Placed
from orchestrator.results.grading import grade_of, p50_grade
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import SpeedUp
from orchestrator.results.wording import SIGNS, Footnotes

REFINE: Final = "farm refine {}"
"""The command that measures on what is open; takes a campaign."""

MOST_NOTES: Final = 6
"""Footnotes below a table, the worst ones. Chosen: more of them push the table off a screen of 24 lines."""


def legend(cells: Sequence[CellRecord], placed: Placed) -> Iterator[str]:
    """Explain the signs that occur, one part each, and say how what is open can be decided."""
    shown = [cell for cell in cells if entries.missing(cell) is None]
    ratios = {cell.cell_id: one for cell in shown if (one := placed.ratios[cell.cell_id]) is not None}
    verdicts = {one.verdict for one in ratios.values()}
    if sure := "".join(SIGNS[one] for one in ("faster", "slower") if one in verdicts):
        yield f"{sure} sure (95 %)"
    if "same" in verdicts:
        yield f"{SIGNS['same']} the same"
    yield from _cautions(shown, unpaired="unpaired" in verdicts)
    if "open" in verdicts:
        yield _open(shown, {key: one for key, one in ratios.items() if one.verdict == "open"})


def _cautions(shown: Sequence[CellRecord], *, unpaired: bool) -> Iterator[str]:
    if unpaired:
        yield f"{SIGNS['unpaired']} unpaired, no verdict"
    graded = [one for cell in shown for one in (grade_of(cell), p50_grade(cell)) if one is not None]
    if any(one.grade == "noisy" for one in graded):
        yield f"{entries.NOISY} noisy"
    measured = [cell.measurement for cell in shown if cell.measurement is not None]
    if any(cell.imported is not None for cell in shown):
        yield f"{entries.IMPORTED} measured by another tool, not compared"
    if any(c.measurement is None or c.measurement.accuracy.verdict is None for c in shown if not c.imported):
        yield f"{entries.NOT_JUDGED} output not judged"
    if any(m.delegation is not None and m.delegation.status != "full" for m in measured):
        yield f"{entries.PARTLY} partly on the CPU"
    if any(cell.again for cell in shown):
        yield f"{entries.AGAIN} being measured again"
    if reused := sum(cell.reused_from is not None for cell in shown):
        yield f"{reused} reused"


def _open(shown: Sequence[CellRecord], left: Mapping[str, SpeedUp]) -> str:
    """Say how many ratios are open, and which command decides them in how many minutes."""
    said = f"{SIGNS['open']} open: {len(left)}"
    if all(one.stays_open for one in left.values()):
        return f"{said}, {' or '.join(sorted({one.stays_open for one in left.values()}))}"
    campaigns = {cell.campaign for cell in shown if cell.cell_id in left}
    if len(campaigns) > 1:
        return said
    minutes = _minutes(shown, left)
    command = REFINE.format(shlex.quote(campaigns.pop()))
    return f"{said} (`{command}`{'' if minutes is None else f', ~{minutes} min'})"


def _minutes(shown: Sequence[CellRecord], left: Mapping[str, SpeedUp]) -> int | None:
    """Estimate how long it takes to decide what is open: the blocks that are missing, times what one takes.

    The arms of a block are the cells of one model and level. None where no attempt says how long it took.
    """
    seconds = 0.0
    for row in {(cell.model, cell.level) for cell in shown if cell.cell_id in left}:
        arms = [cell for cell in shown if (cell.model, cell.level) == row]
        found = [left[cell.cell_id] for cell in arms if cell.cell_id in left]
        missing = max((one.blocks_needed or 0) - one.blocks for one in found)
        # The cold processes take the time of one block more.
        block_s = sum(map(_took_s, arms)) / (1 + max(one.blocks for one in found))
        seconds += max(missing, 0) * block_s
    return max(1, round(seconds / 60)) if seconds else None


def _took_s(cell: CellRecord) -> float:
    """Seconds of a cell's last attempt that says so, else 0."""
    return next((one.duration_ns / 1e9 for one in reversed(cell.attempts) if one.duration_ns), 0.0)


def noted(notes: Footnotes) -> Iterator[str]:
    """Write the worst footnotes, each with the first line of its reason."""
    listed = notes.listed()
    for mark, reason in listed[:MOST_NOTES]:
        yield f"[{mark}] {reason.strip().partition(chr(10))[0]}"
    if len(listed) > MOST_NOTES:
        yield f"{len(listed) - MOST_NOTES} more reasons: -v"
