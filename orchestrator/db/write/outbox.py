"""Jobs on their way to the broker: owed from the commit of their attempt until they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import bindparam, delete
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from agent.wire.messages import JobSpec
from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.db.write import attempts
from orchestrator.policy.lifecycle import AttemptState

_outbox = tables.metadata.tables["outbox"]
_SENT: Final = delete(_outbox).where(_outbox.c.attempt_id.in_(bindparam("names", expanding=True)))


def add(session: Session, jobs: Iterable[tuple[str, JobSpec]], now: datetime) -> None:
    """Owe these jobs to (agent, job)."""
    rows = [{"attempt_id": job.attempt_id, "agent_id": agent_id, "queued_at": now} for agent_id, job in jobs]
    turn.gather(session, tables.Outbox, rows)


def sent(session: Session, attempt_ids: Sequence[str]) -> None:
    """The broker has them."""
    gone = partial(turn.write_only, statement=_SENT, names=list(attempt_ids))
    turn.defer(session, ("outbox", "sent"), gone)


def owed(session: Session) -> list[tuple[str, JobSpec]]:
    """Jobs of attempts that nobody has started, with their agents, oldest first."""
    return _jobs(session, select(tables.Attempt).join(
        tables.Outbox, col(tables.Outbox.attempt_id) == tables.Attempt.attempt_id
    ))  # fmt: skip


def unstarted(
    session: Session, *, agent_id: str | None = None, before: datetime | None = None
) -> list[tuple[str, JobSpec]]:
    """Jobs that were sent and of which nothing was heard: of one agent, or dispatched before a moment."""
    query = select(tables.Attempt).where(col(tables.Attempt.heard_at).is_(None))
    if before is not None:
        query = query.where(tables.Attempt.dispatched_at < before)
    if agent_id is not None:
        query = query.join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id).where(
            tables.Device.agent_id == agent_id
        )
    return _jobs(session, query)


def _jobs(session: Session, query: SelectOfScalar[tables.Attempt]) -> list[tuple[str, JobSpec]]:
    waiting = query.where(tables.Attempt.state == AttemptState.DISPATCHED.value)
    found = []
    for attempt in session.exec(waiting.order_by(col(tables.Attempt.attempt_id))).all():
        cell = session.get_one(tables.Cell, attempt.cell_id)
        device = session.get_one(tables.Device, attempt.device_id)
        found.append((device.agent_id, attempts.job(session, cell, attempt)))
    return found
