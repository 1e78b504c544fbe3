"""Stores when each agent last sent a message, whether it gets jobs, and what an operator decided."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import bindparam, update
from sqlmodel import col

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn


def note_heard(turn: Turn, heard: Mapping[str, datetime]) -> None:
    """Store when each agent last sent a message. A name without a row is an agent that never sent a
    hello: nothing changes.
    """
    change = update(tables.Agent).where(col(tables.Agent.agent_id) == bindparam("name"))
    # Sorted by name: every statement that locks several rows locks them in the same order.
    rows = [{"name": name, "heard": heard[name]} for name in sorted(heard)]
    turn.connection().execute(change.values(heard_at=bindparam("heard")), rows)


def note_undelivered(turn: Turn, agent_id: str, since: datetime | None) -> None:
    """Store since when an agent has results without a receipt; None: it has none. A name without a row is an
    agent that never sent a hello: nothing changes.
    """
    row = turn.get(tables.Agent, agent_id)
    if row is not None and (row.undelivered_since is None) != (since is None):
        row.undelivered_since = since


def note_clock(turn: Turn, agent_id: str, ahead_s: float) -> None:
    """Store how much later the wall clock of an agent's host is than the server's, in seconds."""
    row = turn.get(tables.Agent, agent_id)
    if row is not None:
        row.clock_ahead_s = ahead_s


def note_dropped(turn: Turn, agent_id: str, now: datetime) -> None:
    """Count a result of an agent that was not stored."""
    row = turn.get(tables.Agent, agent_id)
    if row is not None:
        row.dropped, row.dropped_at = row.dropped + 1, now


def refuse(turn: Turn, agent_id: str, protocol: int, why: str, now: datetime) -> None:
    """Store why an agent gets no jobs; the agent may be one without a row."""
    row = turn.get(tables.Agent, agent_id)
    if row is None:
        row = tables.Agent(agent_id=agent_id, host="", version="", protocol=protocol, missing=[], seen_at=now)
    row.refused, row.protocol, row.heard_at = why, protocol, now
    turn.add(row)
    turn.flush()


def set_state(turn: Turn, agent_id: str, state: str) -> bool:
    """Drain, remove or readmit an agent; False where no agent has the name."""
    row = turn.get(tables.Agent, agent_id, with_for_update=True)
    if row is None:
        return False
    row.state = state
    return True
