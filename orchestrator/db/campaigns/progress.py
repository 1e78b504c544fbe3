"""Computes a campaign's progress: the cells that have not ended, and their expected seconds of work."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.policy.lifecycle import AttemptState

_PACE_FROM: Final = 3
"""From how many measured cells on their pace corrects the expected times. Chosen: one slow or fast model
alone would make the time left jump; more: the first minutes of a campaign show the uncorrected time.
"""


def open_count(session: Session, campaign_no: int) -> int:
    """Cells that have not ended."""
    return session.exec(
        select(func.count())
        .select_from(tables.Cell)
        .where(tables.Cell.campaign_no == campaign_no, tables.IS_OPEN)
    ).one()


def total_count(session: Session, campaign_no: int) -> int:
    """All cells of a campaign."""
    return session.exec(
        select(func.count()).select_from(tables.Cell).where(tables.Cell.campaign_no == campaign_no)
    ).one()


def remaining_by_target(session: Session, campaign_no: int, now: datetime) -> Mapping[str, float]:
    """Return the expected seconds of work of each target's open cells, corrected by the pace so far."""
    rows = session.exec(
        select(tables.Cell.target, func.sum(tables.Cell.expected_s))
        .where(tables.Cell.campaign_no == campaign_no, tables.IS_OPEN)
        .group_by(tables.Cell.target)
    )
    factor = _pace(session, campaign_no)
    remaining = {target: factor * float(seconds) for target, seconds in rows}
    running = session.exec(
        select(
            tables.Attempt.device_id, tables.Attempt.started_at, tables.Cell.expected_s, tables.Attempt.arms
        )
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .where(tables.Cell.campaign_no == campaign_no, tables.Attempt.state == AttemptState.RUNNING.value)
    )
    for device_id, started_at, expected_s, arms in running:
        if started_at is not None and device_id in remaining:
            # Those that take turns share the time: each second of it is one's alone.
            spent_s = (now - started_at).total_seconds() / arms
            remaining[device_id] -= min(max(spent_s, 0.0), factor * expected_s)
    return remaining


def _pace(session: Session, campaign_no: int) -> float:
    """Time taken over time expected, of the cells measured so far; 1 before the third."""
    count, taken_ns, expected_s = session.exec(
        select(func.count(), func.sum(tables.Result.duration_ns), func.sum(tables.Cell.expected_s))
        .select_from(tables.Result)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
        .where(
            tables.Cell.campaign_no == campaign_no, col(tables.Result.counted), tables.Result.status == "done"
        )
    ).one()
    if count < _PACE_FROM or not expected_s:
        return 1.0
    return float(taken_ns) / 1e9 / float(expected_s)
