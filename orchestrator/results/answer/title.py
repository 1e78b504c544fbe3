"""The first line above a table: campaign, models, device, level, time, and how many outputs are right."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from orchestrator.results.answer.entries import missing
from orchestrator.results.answer.placed import ON_CPU, threads
from orchestrator.results.answer.table import Title
from orchestrator.results.records import CellRecord


def title_of(cells: Sequence[CellRecord]) -> Title:
    """Say whose results these are; a cell is right where its output was judged and its figure counts."""
    campaigns = list(dict.fromkeys(cell.campaign for cell in cells))
    models, levels = {cell.model for cell in cells}, dict.fromkeys(cell.level for cell in cells)
    judged = (c.measurement for c in cells if missing(c) is None)
    right = sum(m is not None and m.accuracy.verdict == "pass" for m in judged)
    about = (count(len(models), "model"), _devices(cells), " + ".join(levels), _moment(cells))
    name = campaigns[0] if len(campaigns) == 1 else count(len(campaigns), "campaign")
    return Title(name, tuple(filter(None, about)), f"{right}/{len(cells)} right")


def count(number: int, word: str) -> str:
    """Write `1 model`, `2 models`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def _devices(cells: Sequence[CellRecord]) -> str:
    """Name the machine's processor where all cells ran on it, else count the devices; with the threads."""
    names = {cell.device_name.removesuffix(ON_CPU) for cell in cells if cell.device != "-"}
    device = "".join(names) if len(names) == 1 else count(len(names), "device")
    counted = {threads(cell) for cell in cells} - {""}
    return f"{device}, {count(int(counted.pop()), 'thread')}" if len(counted) == 1 else device


def _moment(cells: Sequence[CellRecord]) -> str:
    """When the last of the cells ended, in UTC; the year is in the other forms of the results."""
    ends = [cell.finished_at for cell in cells if cell.finished_at is not None]
    if not ends:
        return ""
    last = max(end if end.tzinfo else end.replace(tzinfo=UTC) for end in ends).astimezone(UTC)
    return f"{last.day} {last:%b %H:%M}"
