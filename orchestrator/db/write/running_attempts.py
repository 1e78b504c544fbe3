"""Attempts under way: what was heard of them, what users want of them, which have fallen silent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import Text, cast, func, or_
from sqlmodel import Session, col, select

from agent.wire.messages import Heartbeat
from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.db.write import attempts

Standing: TypeAlias = Literal["wanted", "unwanted", "stale"]


@dataclass(frozen=True, slots=True)
class Silent:
    """An attempt that nothing was heard of since `since`, and its agent. `device_id` is still taken by it."""

    attempt_id: str
    agent_id: str
    device_id: str
    since: datetime


def note_beat(session: Session, beat: Heartbeat, now: datetime) -> Standing:
    """Store a sign of life. stale: its attempt has ended or has another epoch; unwanted: cancel it."""
    attempt = turn.get(session, tables.Attempt, beat.attempt_id, lock=True)
    if attempt is None or attempt.epoch != beat.epoch or attempt.state not in tables.LIVE_WORDS:
        return "stale"
    attempt.phase, attempt.heard_at = beat.phase, now
    cell = turn.get_one(session, tables.Cell, attempt.cell_id, lock=True)
    campaign = turn.get_one(session, tables.Campaign, cell.campaign_no)
    unwanted = cell.cancel_asked_at or campaign.cancel_asked_at or attempt.stop_asked
    return "unwanted" if unwanted else "wanted"


def unwanted(session: Session, now: datetime) -> list[attempts.LiveAttempt]:
    """Attempts that a user cancelled, that nobody waits for, or that are over their time."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            col(tables.Attempt.state).in_(tables.LIVE_WORDS),
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
    return attempts.live(session, now, found) if found else []


def uses(session: Session, agent_id: str, sha256: str) -> bool:
    """Whether a live attempt of an agent is about this model, or runs on this labelled data."""
    in_plan = cast(tables.Cell.plan, Text).contains(sha256, autoescape=True)
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(
            tables.Device.agent_id == agent_id,
            col(tables.Attempt.state).in_(tables.LIVE_WORDS),
            or_(col(tables.Cell.model_sha256) == sha256, in_plan),
        )
    )
    return session.exec(query.limit(1)).first() is not None


def of_agent(session: Session, agent_id: str) -> list[str]:
    """Ids of the attempts under way on an agent's devices."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.Device.agent_id == agent_id, col(tables.Attempt.state).in_(tables.LIVE_WORDS))
    )
    return list(session.exec(query))


def agent_of(session: Session, attempt_id: str) -> str | None:
    """The agent whose device an attempt uses."""
    return session.exec(
        select(tables.Device.agent_id)
        .join(tables.Attempt, col(tables.Attempt.device_id) == tables.Device.device_id)
        .where(tables.Attempt.attempt_id == attempt_id)
    ).first()


def silent(session: Session, before: datetime) -> list[Silent]:
    """Attempts of which nothing was heard since `before`."""
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    rows = session.exec(
        select(tables.Attempt.attempt_id, tables.Device.agent_id, tables.Attempt.device_id, last)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(col(tables.Attempt.state).in_(tables.LIVE_WORDS), last < before)
    )
    return [Silent(*row) for row in rows]
