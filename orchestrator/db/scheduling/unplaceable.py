"""Ends cells that wait for devices that are gone, as unsupported, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlmodel import col, select

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.matrix import NO_DEVICE
from orchestrator.policy.selectors import is_class


def fail_unplaceable(turn: Turn, device_ids: Sequence[str], why: str, now: datetime) -> int:
    """End the queued cells that only these devices could run, and those of classes that have no device left.

    Returns how many.
    """
    cells = turn.exec(
        select(tables.Cell).where(tables.IS_QUEUED, col(tables.Cell.line).in_(device_ids))
    ).all()
    cell_ends.finish_all(
        turn,
        [
            (
                cell,
                CellState.UNSUPPORTED,
                Reason(code=ReasonCode.NO_DEVICE, text=f"device {cell.line} is gone: {why}"),
            )
            for cell in cells
        ],
        now,
    )
    return len(cells) + _fail_classes(turn, why, now)


def _fail_classes(turn: Turn, why: str, now: datetime) -> int:
    """End the queued cells of classes of which no present device of a willing agent is left."""
    willing = turn.exec(
        select(tables.Device)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(col(tables.Device.present), tables.Agent.state == tables.AGENT_ACTIVE)
    ).all()
    served = {line for device in willing for line in picking.lines_served_by(turn, device)}
    # The few known classes are queried one by one; a query for unserved cells would read every queued
    # cell.
    known = turn.exec(select(tables.Pool.line)).all()
    lost = [line for line in known if line not in served]
    queued = select(tables.Cell).where(tables.IS_QUEUED, col(tables.Cell.line).in_(lost))
    cells = turn.exec(queued).all() if lost else []
    hint = {cell.delegate_kind: why for cell in cells}
    cell_ends.finish_all(turn, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in cells], now)
    return len(cells)


def fail_vanished(turn: Turn, device_ids: Sequence[str], hint: Mapping[str, str], now: datetime) -> int:
    """End the queued cells of unparked campaigns that none of the present devices `device_ids` could take.

    `hint`: delegate kind -> why it is missing.
    """
    present = turn.exec(select(tables.Device).where(col(tables.Device.device_id).in_(device_ids))).all()
    served = {line for device in present for line in picking.lines_served_by(turn, device)}
    gone = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            ~col(tables.Campaign.parked),
            tables.IS_QUEUED,
            col(tables.Cell.line).not_in([*served, NO_DEVICE]),
        )
    ).all()
    cell_ends.finish_all(turn, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in gone], now)
    return len(gone)


def _gone(cell: tables.Cell, hint: Mapping[str, str]) -> Reason:
    why = hint.get(cell.delegate_kind)
    what = f"device {cell.line} is no longer present"
    if is_class(cell.line):
        what = f"no device of the class {cell.target.rpartition('#')[0]} is present any more"
    return Reason(code=ReasonCode.NO_DEVICE, text=what + (f": {why}" if why else ""))
