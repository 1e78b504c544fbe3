"""Reads the beginning of a class's line once for many devices; each takes its first cell from it.

A *line* is where a cell waits: that of its device, or that of a class of devices (`cell.line`).
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, literal, select, union_all
from sqlmodel import Session

from orchestrator.db.queue import candidate_queries
from orchestrator.policy.lifecycle import AttemptState

_SPARE: Final = 16
"""How many cells of a campaign a page holds beyond one per asking device. Chosen: devices that may not take
the first cells (a sibling has them, or they failed there) find others without a second page; every one more
is a row read in vain where there are many campaigns.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """The beginning of a class's line, campaign by campaign. `cut`: campaigns with more cells than are here;
    `used`: (siblings, device) and `failed`: (cell, device) that do not go together now.
    """

    rows: Sequence[Row[Any]]
    cut: frozenset[int]
    used: frozenset[tuple[str, str]]
    failed: frozenset[tuple[str, str]]

    def first_for(self, device_id: str, given: set[str]) -> dict[int, Row[Any]]:
        """Return each campaign's first cell that this device may take; where `cut`, there may be more."""
        first: dict[int, Row[Any]] = {}
        for row in self.rows:
            if row.campaign_no in first or row.cell_id in given or (row.siblings, device_id) in self.used:
                continue
            if (row.cell_id, device_id) not in self.failed:
                first[row.campaign_no] = row
        return first

    def joined(self, more: "Page") -> "Page":
        """Return this page joined with the one that follows it."""
        rows = [*self.rows, *more.rows]
        return Page(rows, self.cut | more.cut, self.used | more.used, self.failed | more.failed)


def load_page(
    session: Session,
    line: str,
    asking: Sequence[str],
    now: datetime,
    device_id: str | None = None,
    given: Collection[str] = (),
) -> Page:
    """Load as many cells of each campaign as devices ask for, and a few more; with `device_id`, only cells
    that it may take and that are not `given`.
    """
    # One limited walk of `ix_cell_pick` per campaign, all in one statement: a limit over all campaigns
    # together could be used up by the first one.
    size = len(asking) + _SPARE
    query = select(candidate_queries.campaign.c.no).where(
        *candidate_queries.startable(), candidate_queries.waiting_in(line)
    )
    numbers = [row.no for row in candidate_queries.fetch(session, query)]
    if not numbers:
        return Page((), frozenset(), frozenset(), frozenset())
    in_order = candidate_queries.in_order(literal(line)).limit(size)
    if device_id is not None:
        in_order = in_order.where(
            candidate_queries.candidate.c.cell_id.not_in(sorted(given)), *candidate_queries.fits(device_id)
        )
    parts = [
        in_order.where(candidate_queries.candidate.c.campaign_no == number).subquery() for number in numbers
    ]
    cell, campaign = candidate_queries.cell, candidate_queries.campaign
    chosen = select(*candidate_queries.COLUMNS).join_from(cell, campaign, campaign.c.no == cell.c.campaign_no)
    chosen = chosen.where(cell.c.cell_id.in_(union_all(*(select(part.c.cell_id) for part in parts))))
    ordered = chosen.order_by(cell.c.campaign_no, cell.c.rank, cell.c.position)
    long_ago = now - candidate_queries.OTHER_UNIT
    when = {"now": now} if device_id is None else {"now": now, "long_ago": long_ago}
    found = candidate_queries.fetch(session, ordered, **when)
    counts = Counter(row.campaign_no for row in found)
    return Page(
        found,
        # A campaign with as many cells as the limit may have more behind them.
        frozenset(no for no, count in counts.items() if count >= size),
        _used(session, {row.siblings for row in found}, asking),
        # As in `candidate_queries.fits`: a cell that failed long ago may go to any device again.
        _failed(session, [row for row in found if (row.not_before or now) > long_ago], asking),
    )


def _used(session: Session, siblings: set[str], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Pairs of siblings and a device that one of them has."""
    c = candidate_queries.cell.c
    query = select(c.siblings, c.device_id).where(c.siblings.in_(sorted(siblings)), c.device_id.in_(asking))
    return frozenset((row.siblings, row.device_id) for row in candidate_queries.fetch(session, query))


def _failed(session: Session, rows: Sequence[Row[Any]], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    """Pairs of a cell and a device on which it failed since a user had it tried again."""
    c, cell = candidate_queries.attempt.c, candidate_queries.cell
    query = (
        select(c.cell_id, c.device_id)
        .join(cell, cell.c.cell_id == c.cell_id)
        .where(
            c.cell_id.in_([row.cell_id for row in rows]),
            c.device_id.in_(asking),
            c.attempt_no > cell.c.retried_after,
            c.state == AttemptState.FAILED.value,
        )
    )
    return frozenset((row.cell_id, row.device_id) for row in candidate_queries.fetch(session, query))
