"""Queries and stores agents: when each last sent a message, which get jobs, which are revoked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, update
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.lifecycle import CellState


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent. `heard_at`: its last sign of life; `devices`: how many it has; `live`: its attempts.

    `undelivered_since`, `dropped`, `dropped_at`, `clock_ahead_s`: see `tables.Agent`.
    """

    agent_id: str
    host: str
    version: str
    protocol: int
    state: str
    refused: str | None
    heard_at: datetime | None
    devices: int
    live: int
    undelivered_since: datetime | None = None
    dropped: int = 0
    dropped_at: datetime | None = None
    clock_ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A present device, with the facts that decide whether it gets work."""

    device_id: str
    agent_id: str
    willing: bool
    heard_at: datetime | None


def members(session: Session) -> list[Member]:
    """Every device that its agent's last hello named."""
    willing = and_(col(tables.Agent.state) == tables.AGENT_ACTIVE, col(tables.Agent.refused).is_(None))
    rows = session.exec(
        select(tables.Device.device_id, tables.Device.agent_id, willing, tables.Agent.heard_at)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(col(tables.Device.present))
    )
    return [Member(*row) for row in rows]


def states(session: Session) -> list[AgentState]:
    """Every agent that ever sent a hello, by name."""
    devices = _count(session, select(tables.Device.agent_id, func.count()).where(col(tables.Device.present))
                     .group_by(tables.Device.agent_id))  # fmt: skip
    live = _count(session, select(tables.Device.agent_id, func.count())
                  .join(tables.Attempt, col(tables.Attempt.device_id) == tables.Device.device_id)
                  .where(tables.IS_LIVE)
                  .group_by(tables.Device.agent_id))  # fmt: skip
    return [
        AgentState(
            row.agent_id, row.host, row.version, row.protocol, row.state, row.refused, row.heard_at,
            devices.get(row.agent_id, 0), live.get(row.agent_id, 0),
            row.undelivered_since, row.dropped, row.dropped_at, row.clock_ahead_s,
        )
        for row in session.exec(
            select(tables.Agent)
            .where(tables.Agent.agent_id != tables.IMPORTS)
            .order_by(col(tables.Agent.agent_id))
        )
    ]  # fmt: skip


def _count(session: Session, query: object) -> Mapping[str, int]:
    return {agent_id: count for agent_id, count in session.exec(query)}  # type: ignore[call-overload]  # noqa: C416  # two columns


def refused(session: Session) -> set[str]:
    """Agents that speak another protocol than the farm."""
    return set(
        session.exec(select(tables.Agent.agent_id).where(col(tables.Agent.refused).is_not(None))).all()
    )


def state_of(session: Session, agent_id: str) -> str | None:
    """`active`, `draining` or `removed`; None for an agent that never sent a hello."""
    row = session.get(tables.Agent, agent_id)
    return None if row is None else row.state


def devices_of(session: Session, agent_ids: Sequence[str]) -> list[str]:
    """Return every device that these agents ever named."""
    return list(
        session.exec(select(tables.Device.device_id).where(col(tables.Device.agent_id).in_(agent_ids)))
    )


def present_devices_of(session: Session, agent_id: str) -> Sequence[tables.Device]:
    """Return the devices that this agent's last hello named."""
    device = tables.Device
    return session.exec(select(device).where(device.agent_id == agent_id, col(device.present))).all()


def leaving(session: Session) -> Mapping[str, str]:
    """Agents that an operator drains or has removed: name -> `draining` or `removed`."""
    return dict(
        session.exec(
            select(tables.Agent.agent_id, tables.Agent.state).where(
                col(tables.Agent.state) != tables.AGENT_ACTIVE
            )
        ).all()
    )


def are_waited_for(session: Session, device_ids: Sequence[str]) -> bool:
    """Whether a queued cell waits for one of these devices alone."""
    waiting = select(tables.Cell.cell_id).where(
        tables.Cell.state == CellState.QUEUED.value, col(tables.Cell.line).in_(device_ids)
    )
    return session.exec(waiting.limit(1)).first() is not None


def revoked(session: Session, now: datetime) -> set[str]:
    """Return the removed agents that were enrolled and have no valid credential any more.

    Their keys and connections may be accepted for a moment yet, where another process has not noticed.
    """
    still = select(tables.Credential.agent_id).where(is_valid(now))
    name = col(tables.Agent.agent_id)
    enrolled_once = name.in_(select(tables.Credential.agent_id))
    removed = col(tables.Agent.state) == tables.AGENT_REMOVED
    return set(session.exec(select(name).where(removed, enrolled_once, name.not_in(still))))


def is_valid(now: datetime) -> ColumnElement[bool]:
    """Return the SQL condition of a credential that is neither revoked nor expired after a replacement."""
    return and_(
        col(tables.Credential.revoked_at).is_(None),
        or_(col(tables.Credential.expires_at).is_(None), col(tables.Credential.expires_at) > now),
    )


def note_heard(turn: Turn, heard: Mapping[str, datetime]) -> None:
    """Store when agents last sent a message; a name without a row never sent a hello and is ignored."""
    change = update(tables.Agent).where(col(tables.Agent.agent_id) == bindparam("name"))
    # Sorted by name: every statement that locks several rows locks them in the same order.
    rows = [{"name": name, "heard": heard[name]} for name in sorted(heard)]
    turn.connection().execute(change.values(heard_at=bindparam("heard")), rows)


def note_undelivered(turn: Turn, agent_id: str, since: datetime | None) -> None:
    """Store since when an agent has results without a receipt; None: it has none. A name without a row is an
    agent that never sent a hello: nothing changes.
    """
    row = turn.get(tables.Agent, agent_id)
    # The first moment stays: while results are left, later reports do not move it.
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
