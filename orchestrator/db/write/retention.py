"""Deletes ended campaigns with everything that belongs to them, a part of it per transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import delete
from sqlmodel import col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn

CELLS_AT_ONCE: Final = 2000
"""How many cells one transaction deletes. Chosen: the scheduler, which waits for every writer, misses no
heartbeat meanwhile; larger: it waits longer; smaller: a large campaign takes more transactions, each with a
durable commit.
"""


def forget(turn: Turn, number: int) -> bool:
    """Delete a campaign with its cells, attempts, results and events, at most `CELLS_AT_ONCE` cells of it.

    True: it is gone, or what is left is shown by another campaign; False: call again, in a new transaction.
    """
    some = select(tables.Cell.cell_id).where(tables.Cell.campaign_no == number)
    found = turn.exec(some.order_by(tables.Cell.cell_id).limit(CELLS_AT_ONCE)).all()
    cells = set(found) - _shown_meanwhile(turn, found, number)
    # Children before parents: foreign keys hold at every statement.
    attempts = select(tables.Attempt.attempt_id).where(col(tables.Attempt.cell_id).in_(cells))
    for statement in (
        delete(tables.Event).where(col(tables.Event.cell_id).in_(cells)),
        delete(tables.Outbox).where(col(tables.Outbox.attempt_id).in_(attempts)),
        delete(tables.Output).where(col(tables.Output.attempt_id).in_(attempts)),
        delete(tables.Result).where(col(tables.Result.cell_id).in_(cells)),
        delete(tables.Attempt).where(col(tables.Attempt.cell_id).in_(cells)),
        delete(tables.Cell).where(col(tables.Cell.cell_id).in_(cells)),
    ):
        turn.connection().execute(statement)
    if turn.exec(some.limit(1)).first() is not None:
        return not cells
    for statement in (
        delete(tables.Manifest).where(col(tables.Manifest.campaign_no) == number),
        delete(tables.Campaign).where(col(tables.Campaign.no) == number),
    ):
        turn.connection().execute(statement)
    return True


def _shown_meanwhile(turn: Turn, cells: Collection[str], number: int) -> set[str]:
    """Those of a campaign's cells whose results the scheduler has just reused for another campaign."""
    viewer = tables.Cell
    return set(
        turn.exec(
            select(tables.Attempt.cell_id)
            .join(viewer, col(viewer.shown_attempt_id) == tables.Attempt.attempt_id)
            .where(col(tables.Attempt.cell_id).in_(cells), viewer.campaign_no != number)
        )
    )


def forget_unused(turn: Turn) -> None:
    """Delete models and environments to which no row refers any more, and what is known of such models."""
    models = select(tables.Cell.model_sha256)
    environments = select(tables.Device.environment_id).union(select(tables.Result.environment_id))
    for statement in (
        delete(tables.ReferenceClaim).where(col(tables.ReferenceClaim.model_sha256).not_in(models)),
        delete(tables.Model).where(col(tables.Model.sha256).not_in(models)),
        delete(tables.Environment).where(col(tables.Environment.environment_id).not_in(environments)),
    ):
        turn.connection().execute(statement)
