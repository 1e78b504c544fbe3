"""Queries attempts under way: by agent, those no longer wanted, and those that have fallen silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Text, cast, func, or_
from sqlmodel import Session, col, select

from orchestrator.db import tables


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt under way. `cancel_asked`: a user wants it to end; `parked`: no process waits for its
    campaign; `stop_asked`: the orchestrator itself stops it; `overdue`: it is over its deadline.
    """

    attempt_id: str
    cell_id: str
    campaign_no: int
    device_id: str
    agent_id: str
    cancel_asked: bool
    parked: bool
    stop_asked: bool
    overdue: bool


def running(
    session: Session, now: datetime, attempt_ids: Sequence[str] | None = None
) -> list[RunningAttempt]:
    """Return the attempts under way: all of them, or those of `attempt_ids`."""
    query = (
        select(tables.Attempt, tables.Cell, tables.Campaign, tables.Device.agent_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.IS_LIVE)
    )
    if attempt_ids is not None:
        query = query.where(col(tables.Attempt.attempt_id).in_(attempt_ids))
    return [
        RunningAttempt(
            attempt_id=attempt.attempt_id,
            cell_id=cell.cell_id,
            campaign_no=cell.campaign_no,
            device_id=attempt.device_id,
            agent_id=agent_id,
            cancel_asked=cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None,
            parked=campaign.parked,
            stop_asked=attempt.stop_asked,
            overdue=attempt.deadline_at is not None and attempt.deadline_at < now,
        )
        for attempt, cell, campaign, agent_id in session.exec(query)
    ]


@dataclass(frozen=True, slots=True)
class Silent:
    """An attempt that sent no message since `since`. It still holds its device."""

    attempt_id: str
    agent_id: str
    device_id: str
    since: datetime


def unwanted(session: Session, now: datetime) -> list[RunningAttempt]:
    """Return the attempts that a user cancelled, that no process waits for, or that are over their time."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            tables.IS_LIVE,
            or_(
                col(tables.Cell.cancel_asked_at).is_not(None),
                col(tables.Campaign.cancel_asked_at).is_not(None),
                col(tables.Campaign.parked),
                col(tables.Attempt.stop_asked),
                col(tables.Attempt.deadline_at) < now,
            ),
        )
    )
    found = session.exec(query).all()
    return running(session, now, found) if found else []


def uses(session: Session, agent_id: str, sha256: str) -> bool:
    """Whether a live attempt of an agent uses this model or this labelled data."""
    in_plan = cast(tables.Cell.plan, Text).contains(sha256, autoescape=True)
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(
            tables.Device.agent_id == agent_id,
            tables.IS_LIVE,
            or_(col(tables.Cell.model_sha256) == sha256, in_plan),
        )
    )
    return session.exec(query.limit(1)).first() is not None


def of_agent(session: Session, agent_id: str) -> list[str]:
    """Ids of the attempts under way on an agent's devices."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.Device.agent_id == agent_id, tables.IS_LIVE)
    )
    return list(session.exec(query))


def silent(session: Session, before: datetime) -> list[Silent]:
    """Return the attempts that sent no message since `before`."""
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    rows = session.exec(
        select(tables.Attempt.attempt_id, tables.Device.agent_id, tables.Attempt.device_id, last)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.IS_LIVE, last < before)
    )
    return [Silent(*row) for row in rows]
