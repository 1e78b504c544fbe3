"""Agents as the scheduler sees them: who is there, who was heard, who is to leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, bindparam, func, update
from sqlmodel import Session, col, select

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.write import attempts, campaigns
from orchestrator.policy.lifecycle import CellState


@dataclass(frozen=True, slots=True)
class AgentState:
    """One agent. `heard_at`: its last sign of life; `devices`: how many it has; `live`: its attempts."""

    agent_id: str
    host: str
    version: str
    protocol: int
    state: str
    refused: str | None
    heard_at: datetime | None
    devices: int
    live: int


@dataclass(frozen=True, slots=True)
class Member:
    """A present device and what decides whether it gets work."""

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
    """Every agent that ever said hello, by name."""
    devices = _count(session, select(tables.Device.agent_id, func.count()).where(col(tables.Device.present))
                     .group_by(tables.Device.agent_id))  # fmt: skip
    live = _count(session, select(tables.Device.agent_id, func.count())
                  .join(tables.Attempt, col(tables.Attempt.device_id) == tables.Device.device_id)
                  .where(col(tables.Attempt.state).in_(tables.LIVE_WORDS))
                  .group_by(tables.Device.agent_id))  # fmt: skip
    return [
        AgentState(
            row.agent_id, row.host, row.version, row.protocol, row.state, row.refused, row.heard_at,
            devices.get(row.agent_id, 0), live.get(row.agent_id, 0),
        )
        for row in session.exec(select(tables.Agent).order_by(col(tables.Agent.agent_id)))
    ]  # fmt: skip


def _count(session: Session, query: object) -> Mapping[str, int]:
    return {agent_id: count for agent_id, count in session.exec(query)}  # type: ignore[call-overload]  # noqa: C416  # two columns


def note_heard(session: Session, heard: Mapping[str, datetime]) -> None:
    """Agents gave signs of life; the last of each is kept. One that never said hello is none yet."""
    change = update(tables.Agent).where(col(tables.Agent.agent_id) == bindparam("name"))
    rows = [{"name": name, "heard": heard[name]} for name in sorted(heard)]
    session.connection().execute(change.values(heard_at=bindparam("heard")), rows)


def refuse(session: Session, agent_id: str, protocol: int, why: str, now: datetime) -> None:
    """Remember why an agent gets no jobs; it may be one that was never heard before."""
    row = session.get(tables.Agent, agent_id)
    if row is None:
        row = tables.Agent(agent_id=agent_id, host="", version="", protocol=protocol, missing=[], seen_at=now)
    row.refused, row.protocol, row.heard_at = why, protocol, now
    session.add(row)
    session.flush()


def refused(session: Session) -> set[str]:
    """Agents of another protocol than the farm's."""
    return set(
        session.exec(select(tables.Agent.agent_id).where(col(tables.Agent.refused).is_not(None))).all()
    )


def set_state(session: Session, agent_id: str, state: str) -> bool:
    """Let an agent drain, leave or come back; False where there is no such agent."""
    row = session.get(tables.Agent, agent_id, with_for_update=True)
    if row is None:
        return False
    row.state = state
    return True


def devices_of(session: Session, agent_ids: Sequence[str]) -> list[str]:
    """The devices that these agents ever named."""
    return list(
        session.exec(select(tables.Device.device_id).where(col(tables.Device.agent_id).in_(agent_ids)))
    )


def present_devices_of(session: Session, agent_id: str) -> set[str]:
    """The devices that this agent's last hello named."""
    device = tables.Device
    query = select(device.device_id).where(device.agent_id == agent_id, col(device.present))
    return set(session.exec(query))


def leaving(session: Session) -> Mapping[str, str]:
    """Agents that get no more work because somebody said so: name -> `draining` or `removed`."""
    return dict(
        session.exec(
            select(tables.Agent.agent_id, tables.Agent.state).where(
                col(tables.Agent.state) != tables.AGENT_ACTIVE
            )
        ).all()
    )


def stranded(session: Session, device_ids: Sequence[str]) -> bool:
    """Whether a queued cell waits for one of these devices alone."""
    waiting = select(tables.Cell.cell_id).where(
        tables.Cell.state == CellState.QUEUED.value, col(tables.Cell.target).in_(device_ids)
    )
    return session.exec(waiting.limit(1)).first() is not None


def strand(session: Session, device_ids: Sequence[str], why: str, now: datetime) -> int:
    """End the queued cells that only these devices could run; returns how many."""
    cells = session.exec(
        select(tables.Cell).where(
            tables.Cell.state == CellState.QUEUED.value, col(tables.Cell.target).in_(device_ids)
        )
    ).all()
    attempts.finish_all(
        session,
        [
            (
                cell,
                CellState.UNSUPPORTED,
                Reason(code=ReasonCode.NO_DEVICE, text=f"device {cell.target} is gone: {why}"),
            )
            for cell in cells
        ],
        now,
    )
    return len(cells) + campaigns.strand_classes(session, why, now)
