"""Counts open cells by state, and reads the state of the whole farm in a few queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.campaigns import scheduler_state
from orchestrator.db.campaigns.scheduler_state import SchedulerState
from orchestrator.db.devices import agents
from orchestrator.db.devices import states as device_states
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.devices.states import DeviceState
from orchestrator.policy.lifecycle import OPEN, CellState


def counts(session: Session, suspect_before: datetime) -> dict[str, int]:
    """Return the number of open cells by state; `suspect`: of attempts without a message since
    `suspect_before`; `paused`: of queued cells whose campaign is paused.
    """
    rows = session.exec(
        select(tables.Cell.state, func.count()).where(tables.IS_OPEN).group_by(col(tables.Cell.state))
    )
    found = {state.value: 0 for state in CellState if state in OPEN} | dict(rows.all())
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    silent = select(func.count()).select_from(tables.Attempt).where(tables.IS_LIVE, last < suspect_before)
    paused = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, col(tables.Campaign.paused_at).is_not(None))
    )
    return found | {"suspect": session.exec(silent).one(), "paused": session.exec(paused).one()}


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
    devices: Sequence[DeviceState]
    scheduler: SchedulerState | None


def read(session: Session, now: datetime, suspect_s: float) -> FarmState:
    """Return the state now; agents that were silent for `suspect_s` seconds get no work."""
    silent_before = now - timedelta(seconds=suspect_s)
    return FarmState(
        now,
        counts(session, silent_before),
        agents.states(session),
        device_states.device_states(session, now, silent_before),
        scheduler_state.read(session),
    )
