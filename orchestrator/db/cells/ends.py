"""Ends cells: writes each terminal state once, and with the last one the end of the campaign.

A cell that was measured before and is measured again shows its earlier result all the while. It loses that to
a new result alone: any other end restores `done`, with the reason why there is no newer result.
"""

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Update, bindparam, exists, literal, select, update
from sqlmodel import col

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import events, tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import candidate_queries
from orchestrator.policy.blocks import Refining
from orchestrator.policy.lifecycle import CellState, cancelled_reason, move_cell, replaces
from orchestrator.results.events import EventKind


def _close_statement() -> Update:
    """End a campaign that has no open cell left.

    Almost always some cell is still queued, and that is checked first: in the order of `ix_cell_pick`, which
    makes the engine take that index and stop at its first row, however many cells have ended. A plain EXISTS
    over all open cells would read the ended ones too.
    """
    cell, campaign = candidate_queries.cell, candidate_queries.campaign
    of_campaign = cell.c.campaign_no == bindparam("number")
    queued = select(cell.c.cell_id).where(of_campaign, tables.IS_QUEUED)
    first = queued.order_by(cell.c.line, cell.c.rank, cell.c.position).limit(1).scalar_subquery()
    is_open = exists(literal(1)).where(of_campaign, tables.IS_OPEN)
    this = (campaign.c.no == bindparam("number"), campaign.c.ended_at.is_(None))
    return (
        update(campaign)
        .where(*this, first.is_(None), ~is_open)
        .values(ended_at=bindparam("at", type_=tables.UtcDateTime))
    )


_CLOSE: Final = _close_statement()


def finish(
    turn: Turn,
    cell: tables.Cell,
    state: CellState,
    reason: Reason,
    now: datetime,
    kind: EventKind = "finished",
) -> None:
    """Write a cell's terminal state, once. Raises `IllegalMoveError` for a cell that has ended.

    One whose earlier result stands is `done` again, unless this end replaces it.
    """
    finish_all(turn, [(cell, state, reason)], now, kind)


def finish_all(
    turn: Turn,
    ends: Iterable[tuple[tables.Cell, CellState, Reason]],
    now: datetime,
    kind: EventKind = "finished",
) -> None:
    """Write the terminal states of many cells, and the end of the campaigns that have no other cell left.

    Raises `IllegalMoveError` for a cell that has ended.
    """
    campaigns = set()
    for cell, state, reason in ends:
        text = sentence(reason)
        if stands(cell) and not replaces(state, reason):
            state, reason, text = _restored(turn, cell, reason)  # noqa: PLW2901  # the end that is written
        cell.state = move_cell(CellState(cell.state), state).value
        cell.reason_code = reason.code.value
        cell.reason_text = reason.text
        cell.ended_at = now
        cell.not_before = None
        # A refinement placed it by how vague its model is: its own place comes back.
        if cell.refines is not None:
            cell.rank, cell.refines = Refining.read(cell.refines).rank, None
        events.add(turn, cell, kind, text, now)
        campaigns.add(cell.campaign_no)
    for number in campaigns:
        # At the end of the turn: its cells are written by then, and one question serves all of them.
        turn.at_end(("close", number), partial(turn.write_only, _CLOSE, number=number, at=now))


def stands(cell: tables.Cell) -> bool:
    """Whether a cell that has not ended shows an earlier result."""
    return cell.shown_attempt_id is not None


def withdraw(turn: Turn, cell: tables.Cell) -> None:
    """Let the cell's earlier result decide it no more; a result of its own stays as evidence."""
    if cell.shown_attempt_id is not None:
        counted = select(tables.Result).where(
            col(tables.Result.cell_id) == cell.cell_id, col(tables.Result.counted)
        )
        for result in turn.scalars(counted):
            result.counted = False
            turn.flush()  # before the next one is stored: of a cell, the database takes one that counts
    cell.shown_attempt_id = cell.reused_from = None


def _restored(turn: Turn, cell: tables.Cell, reason: Reason) -> tuple[CellState, Reason, str]:
    """Return the end of a cell whose earlier result stays: state, reason and the text of the event."""
    result = turn.find_result(str(cell.shown_attempt_id))
    # The new attempt may have been on another unit of the class: what is shown is of this one.
    if result is not None:
        cell.device_id = result.device_id
    # Of a new measurement that a user cancelled nothing stays; any other end tells why there is no newer one.
    cancelled = reason.code is cancelled_reason().code
    kept = Reason(code=ReasonCode.COMPLETED, text="measured") if cancelled else reason
    return CellState.DONE, kept, f"{sentence(reason)}; the earlier result stays"


def sentence(reason: Reason) -> str:
    """Format a reason as an event's text; empty for a cell that was measured."""
    return "" if reason.code is ReasonCode.COMPLETED else f"{reason.code.value}: {reason.text}"
