"""Agents: when they were heard, whether they get jobs, and what somebody decided about them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import bindparam, update
from sqlmodel import col

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn


def note_heard(turn: Turn, heard: Mapping[str, datetime]) -> None:
    """Store when each agent was heard last. A name without a row is an agent that never said hello: no
    change.
    """
    change = update(tables.Agent).where(col(tables.Agent.agent_id) == bindparam("name"))
    # In the order of their names, as every statement that locks several rows.
    rows = [{"name": name, "heard": heard[name]} for name in sorted(heard)]
    turn.connection().execute(change.values(heard_at=bindparam("heard")), rows)


def refuse(turn: Turn, agent_id: str, protocol: int, why: str, now: datetime) -> None:
    """Store why an agent gets no jobs; it may be one that was never heard before."""
    row = turn.get(tables.Agent, agent_id)
    if row is None:
        row = tables.Agent(agent_id=agent_id, host="", version="", protocol=protocol, missing=[], seen_at=now)
    row.refused, row.protocol, row.heard_at = why, protocol, now
    turn.add(row)
    turn.flush()


def set_state(turn: Turn, agent_id: str, state: str) -> bool:
    """Let an agent drain, leave or come back; False where there is no such agent."""
    row = turn.get(tables.Agent, agent_id, with_for_update=True)
    if row is None:
        return False
    row.state = state
    return True
