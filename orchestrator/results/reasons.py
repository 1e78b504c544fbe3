"""Shortens the reasons of cells without a result to one line, and marks texts that several places share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.results.records import CellRecord

LONGEST_REASON = 140
"""Characters of a reason that are shown in a list: one line of most terminals. A longer one is cut, and
`farm show` has it in full."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One reason and the cells that ended for it, in the order of the table."""

    text: str
    cells: tuple[CellRecord, ...]


def first_line(text: str, limit: int) -> str:
    """Return the first line of a reason in at most `limit` characters, and the number of further lines."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or [""]
    shown = lines[0] if len(lines[0]) <= limit else lines[0][:limit].rstrip() + "…"
    more = len(lines) - 1
    return shown + (f" (and {more} more line{'' if more == 1 else 's'})" if more else "")


def reasons_of(cells: Sequence[CellRecord]) -> tuple[Shared, ...]:
    """Return the reasons of the cells without a counted result, in order of first appearance."""
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.reason is not None and cell.reason.text and has_no_result(cell):
            found.setdefault(cell.reason.text, []).append(cell)
    return tuple(Shared(text, tuple(members)) for text, members in found.items())


def has_no_result(cell: CellRecord) -> bool:
    """Whether a cell has no right result, so that a table shows a reason instead."""
    return cell.struck_out or cell.status != "done" or cell.measurement is None


class Footnotes:
    """Collects texts that several places refer to; equal texts share a mark (a, b, …, z, aa, …)."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """Return the mark of a text."""
        return self._marks.setdefault(text, _letters(len(self._marks)))

    def listed(self) -> tuple[tuple[str, str], ...]:
        """Return (mark, text) in order of first use."""
        return tuple((mark, text) for text, mark in self._marks.items())


def _letters(number: int) -> str:
    head, tail = divmod(number, 26)
    return (_letters(head - 1) if head else "") + chr(ord("a") + tail)
