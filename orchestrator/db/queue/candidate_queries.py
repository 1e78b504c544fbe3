"""The queries that find idle devices and the cells that could be next on them.

A cell waits in one line: that of its device, or that of a class of devices (`cell.line`). One seek per
unfinished campaign and line finds the first cell that may start, by index alone, however many cells there
are. The fixed statements are made once: building and compiling one takes longer than its answer.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlmodel import Session

from orchestrator.db import tables

OTHER_UNIT: Final = timedelta(seconds=60)
"""How long a cell of a class that failed on a device waits for another unit before it may go there again.
Chosen: about the length of a short cell, after which another unit is free; longer: a class with one
device left does nothing for longer after each failure.
"""

agent, attempt, campaign, cell, device, pool = (
    tables.metadata.tables[name] for name in ("agent", "attempt", "campaign", "cell", "device", "pool")
)
candidate = cell.alias("candidate")
_asking = device.alias("asking")
_sibling = cell.alias("sibling")
_tried = attempt.alias("tried")

NOW: Final = sa.bindparam("now", type_=tables.UtcDateTime)
COLUMNS: Final = (
    cell.c.cell_id, cell.c.line, cell.c.rank, cell.c.campaign_no, cell.c.position, cell.c.expected_s,
    campaign.c.served_s, campaign.c.served_at, campaign.c.submitted_at, campaign.c.purpose,
    campaign.c.submitted_by, campaign.c.user_served_s, campaign.c.baseline_kind, cell.c.siblings,
    cell.c.not_before,
)  # fmt: skip


def indexed(condition: str) -> Any:
    """Write a condition literally, as the partial indexes do: with a parameter no engine uses them."""
    return sa.text(condition)


def startable() -> tuple[sa.ColumnElement[bool], ...]:
    """Campaigns whose cells may start: unfinished, and neither parked, paused nor cancelled."""
    return (
        indexed("campaign.ended_at IS NULL"),
        sa.not_(campaign.c.parked),
        campaign.c.paused_at.is_(None),
        campaign.c.cancel_asked_at.is_(None),
    )


def in_order(line: Any) -> sa.Select[Any]:
    """Ids of the cells in a line that may start at `:now`, in the order of their campaign.

    The order is that of `ix_cell_pick` after campaign and line: with a limit, the engine walks the index from
    the first cell on and sorts nothing.
    """
    c = candidate.c
    return (
        sa.select(c.cell_id)
        .where(indexed("candidate.state = 'queued'"), c.line == line)
        .where(sa.or_(c.not_before.is_(None), c.not_before <= NOW))
        .order_by(c.rank, c.position)
    )


def fits(device_id: Any) -> tuple[sa.ColumnElement[bool], ...]:
    """No sibling has this device; a cell that failed here since `:long_ago` prefers another unit, unless a
    user has had it tried again since.
    """
    c = candidate.c
    # NOT IN over the few cells that have this device (`ix_cell_siblings`): evaluated once for the whole line,
    # where a correlated EXISTS would be evaluated for every cell.
    used = sa.select(_sibling.c.siblings)
    used = used.where(_sibling.c.device_id == device_id, indexed("sibling.siblings IS NOT NULL"))
    failed = sa.exists().where(
        _tried.c.cell_id == c.cell_id,
        _tried.c.device_id == device_id,
        _tried.c.attempt_no > c.retried_after,
        indexed("tried.state = 'failed'"),
    )
    long_ago = c.not_before <= sa.bindparam("long_ago", type_=tables.UtcDateTime)
    return c.siblings.not_in(used), sa.or_(~failed.correlate(candidate), long_ago)


def waiting_in(line: Any) -> sa.ColumnElement[bool]:
    """Whether a campaign has a queued cell in a line."""
    return (
        sa.exists()
        .where(candidate.c.campaign_no == campaign.c.no, candidate.c.line == line)
        .where(indexed("candidate.state = 'queued'"))
        .correlate(campaign)
    )


def _first(line: Any, *of: Any, conditions: tuple[sa.ColumnElement[bool], ...] = ()) -> Any:
    """Build a scalar subquery for the first cell of a campaign in a line.

    A window function or DISTINCT ON would read every waiting cell; this reads one index entry per campaign.
    """
    cells = in_order(line).where(candidate.c.campaign_no == campaign.c.no, *conditions)
    return cells.limit(1).correlate(campaign, *of).scalar_subquery()


def _hosts() -> sa.Select[Any]:
    c = device.c
    these = sa.select(_asking.c.agent_id).where(
        _asking.c.device_id.in_(sa.bindparam("devices", expanding=True))
    )
    return (
        sa.select(
            c.device_id, c.agent_id, c.kind, c.name, c.vendor, c.labels, c.delegates, c.exclusion_group,
            c.rests_until, c.quarantined_at, c.present, c.reserved_by, c.reserved_until, c.reserved_text,
            attempt.c.exclusion_group.label("runs"),
        )
        .join(agent, agent.c.agent_id == c.agent_id)
        .outerjoin(attempt, sa.and_(attempt.c.device_id == c.device_id, tables.IS_LIVE))
        .where(c.agent_id.in_(these), agent.c.state == tables.AGENT_ACTIVE, agent.c.refused.is_(None))
    )  # fmt: skip


def _idle() -> sa.Select[Any]:
    taken = sa.exists().where(attempt.c.device_id == device.c.device_id, tables.IS_LIVE)
    return sa.select(device.c.device_id).where(device.c.present, ~taken.correlate(device))


def _first_in_lines() -> sa.Select[Any]:
    own = sa.select(device.c.device_id.label("name"))
    own = own.where(device.c.device_id.in_(sa.bindparam("devices", expanding=True)))
    # The lines of all classes are asked for: SQL cannot say which device fits a class.
    lines = sa.union_all(own, sa.select(pool.c.line)).subquery("asked")
    return (
        sa.select(*COLUMNS)
        .select_from(
            lines.join(campaign, sa.literal(value=True))
        )  # every pair of line and unfinished campaign
        .join(cell, cell.c.cell_id == _first(lines.c.name, lines))
        .where(*startable())
    )


def _first_of_class() -> sa.Select[Any]:
    not_given = candidate.c.cell_id.not_in(sa.bindparam("given", expanding=True))
    first = _first(sa.bindparam("line"), conditions=(not_given, *fits(sa.bindparam("device"))))
    query = sa.select(*COLUMNS).select_from(campaign).join(cell, cell.c.cell_id == first)
    return query.where(*startable())


HOSTS: Final = _hosts()
"""The hosts of `:devices` whose agents take work now: each of their devices, and the exclusion group that an
attempt has taken there.
"""

IDLE: Final = _idle()
"""The present devices on which nothing runs."""

FIRST_IN_LINES: Final = _first_in_lines()
"""The first cell of each campaign in the lines of `:devices`, and in that of each class, at `:now`."""

FIRST_OF_CLASS: Final = _first_of_class()
"""The first cell of each campaign in the `:line` of a class that `:device` may take and is not `:given`."""


def fetch(session: Session, query: sa.Select[Any], **values: object) -> Sequence[sa.Row[Any]]:
    """Run one of these queries."""
    return session.connection().execute(query, values).all()
