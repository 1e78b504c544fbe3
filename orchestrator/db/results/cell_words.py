"""Finds a cell by words of its model, delegate, device, level and campaign: `iris gpu`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, or_
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.results.records import find_cell
from orchestrator.errors import UsageError

_MOST_CANDIDATES: Final = 8
"""Candidates that an error lists: about half a screen. The rest is counted."""

_MOST_ROWS: Final = 2_000
"""Cells that are looked at, of the newest campaigns: words that fit more of them are too few to name one."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A cell with the texts by which a word may name it."""

    cell_id: str
    campaign_no: int
    campaign: str
    model: str
    delegate: str
    device: str
    level: str

    @property
    def own(self) -> tuple[str, ...]:
        """The cell's own texts that a word is compared with, in lower case; without its campaign's."""
        return tuple(text.lower() for text in (self.model, self.delegate, self.device, self.level))

    def __str__(self) -> str:
        return (
            f"{self.cell_id[:10]}  {self.model} {self.delegate}@{self.device} {self.level} in {self.campaign}"
        )


def find_cell_by(session: Session, spoken: str) -> str:
    """Return the id of one cell, by the beginning of its id or by words that each occur in one of its names.

    A word that is a whole name is not taken as a part of another, and one that occurs in names of cells not
    as a part of a campaign's, which may be called after its first model. Of several campaigns the newest
    counts that has such a cell. Raises `UsageError` where no cell fits, or several; it lists them.
    """
    words = spoken.split()
    if len(words) == 1:
        # The beginning of an id wins over names that have it in them.
        exact = col(tables.Cell.cell_id).startswith(words[0], autoescape=True)
        if session.exec(select(tables.Cell.cell_id).where(exact).limit(1)).first() is not None:
            return find_cell(session, words[0])
    found = [] if not words else _of_newest(_fitting(_rows(session, words), [word.lower() for word in words]))
    if not found:
        raise UsageError(
            f"no cell {spoken!r}: give the beginning of its id, or words of its model, delegate, device, "
            "level or campaign; farm status CAMPAIGN lists them"
        )
    if len(found) > 1:
        listed = "".join(f"\n  {one}" for one in found[:_MOST_CANDIDATES])
        more = len(found) - _MOST_CANDIDATES
        rest = f"\n  and {more} more" if more > 0 else ""
        raise UsageError(f"{spoken!r} fits {len(found)} cells; add a word, or give an id:{listed}{rest}")
    return found[0].cell_id


def _rows(session: Session, words: Sequence[str]) -> Iterable[_Named]:
    """Return the cells in whose names every word occurs, those of the newest campaign first."""
    names = (
        col(tables.Cell.model), col(tables.Cell.delegate), col(tables.Cell.device_id),
        col(tables.Cell.target), col(tables.Cell.level), col(tables.Campaign.name),
    )  # fmt: skip
    query = (
        select(tables.Cell, tables.Campaign)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.Campaign.purpose == tables.MEASURE)
    )
    for word in words:
        query = query.where(
            or_(*(func.lower(name).contains(word.lower(), autoescape=True) for name in names))
        )
    newest = (
        col(tables.Campaign.submitted_at).desc(), col(tables.Campaign.no).desc(), col(tables.Cell.position),
    )  # fmt: skip
    for cell, campaign in session.exec(query.order_by(*newest).limit(_MOST_ROWS)):
        device = cell.device_id or cell.target
        yield _Named(
            cell.cell_id, cell.campaign_no, campaign.name, cell.model, cell.delegate, device, cell.level
        )


def _fitting(cells: Iterable[_Named], words: Sequence[str]) -> list[_Named]:
    """Drop the cells in which a word is only part of a name, if it is another cell's whole name, and those
    whose campaign's name alone has it, if another's own name does.
    """
    found = list(cells)
    for word in words:
        whole = [cell for cell in found if word in (*cell.own, cell.campaign.lower())]
        own = [cell for cell in found if any(word in text for text in cell.own)]
        found = whole or own or found
    return found


def _of_newest(cells: Sequence[_Named]) -> list[_Named]:
    return [cell for cell in cells if cell.campaign_no == cells[0].campaign_no]
