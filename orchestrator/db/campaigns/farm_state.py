"""Counts open cells, keeps the row in which the process that schedules describes itself, reads the state of
the whole farm in a few queries, and computes the progress of a campaign.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.devices import agents
from orchestrator.db.devices import states as device_states
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.lifecycle import OPEN, AttemptState, CellState

NO_BROKER, BROKER_UP, BROKER_DOWN = "none", "up", "down"
STOPPED = "stopped"
"""In place of the broker's state: the process ended normally, and none checks the broker now."""


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The process that schedules, or did. `broker`: none | up | down | stopped; `broker_text`: why it
    is down; `store`: the store that has the farm's files.
    """

    host: str
    pid: int
    since_at: datetime
    beat_at: datetime
    broker: str
    broker_text: str
    store: str


def read_scheduler(session: Session) -> SchedulerState | None:
    """Return the row; None if no lab ever ran on this database."""
    row = session.get(tables.Scheduler, 1)
    if row is None:
        return None
    values = {name: getattr(row, name) for name in SchedulerState.__slots__}
    return SchedulerState(**values)


def write_scheduler(turn: Turn, state: SchedulerState) -> None:
    """Replace the row."""
    row = turn.get(tables.Scheduler, 1)
    values = {name: getattr(state, name) for name in SchedulerState.__slots__}
    if row is None:
        turn.add(tables.Scheduler(no=1, **values))
    else:
        row.sqlmodel_update(values)


def counts(session: Session, suspect_before: datetime) -> dict[str, int]:
    """Return the number of open cells by state; `suspect`: of attempts without a message since
    `suspect_before`; `paused`: of queued cells whose campaign is paused.
    """
    rows = session.exec(
        select(tables.Cell.state, func.count()).where(tables.IS_OPEN).group_by(col(tables.Cell.state))
    )
    found = {state.value: 0 for state in CellState if state in OPEN} | dict(rows.all())
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    silent = tables.count(session, tables.Attempt, tables.IS_LIVE, last < suspect_before)
    paused = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, col(tables.Campaign.paused_at).is_not(None))
    )
    return found | {"suspect": silent, "paused": session.exec(paused).one()}


def waiting_of(session: Session, user: str) -> int:
    """Count the queued cells of one submitter."""
    query = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, tables.Campaign.submitted_by == user)
    )
    return session.exec(query).one()


@dataclass(frozen=True, slots=True)
class FarmState:
    """The farm at `at`. `cells`: open cells by state, with `suspect` attempts and `paused` cells."""

    at: datetime
    cells: Mapping[str, int]
    agents: Sequence[AgentState]
    devices: Sequence[device_states.DeviceState]
    scheduler: SchedulerState | None


def read(session: Session, now: datetime, suspect_s: float) -> FarmState:
    """Return the state now; agents that were silent for `suspect_s` seconds get no work."""
    silent_before = now - timedelta(seconds=suspect_s)
    return FarmState(
        now,
        counts(session, silent_before),
        agents.states(session),
        device_states.device_states(session, now, silent_before),
        read_scheduler(session),
    )


_PACE_FROM: Final = 3
"""From how many measured cells on their pace corrects the expected times. Chosen: one slow or fast model
alone would make the time left jump; more: the first minutes of a campaign show the uncorrected time.
"""


def open_count(session: Session, campaign_no: int) -> int:
    """Cells that have not ended."""
    return tables.count(session, tables.Cell, tables.Cell.campaign_no == campaign_no, tables.IS_OPEN)


def total_count(session: Session, campaign_no: int) -> int:
    """All cells of a campaign."""
    return tables.count(session, tables.Cell, tables.Cell.campaign_no == campaign_no)


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
            # A cell that takes longer than expected has nothing left, and takes nothing from the others.
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
