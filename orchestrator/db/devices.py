"""Agents and devices, as their last hello described them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from agent.messages import AgentHello, Device, MissingDelegate, environment_id
from orchestrator.db import tables
from orchestrator.scheduler import DeviceSlot


@dataclass(frozen=True, slots=True)
class RecordedHello:
    """A hello from the database, and when it was said."""

    hello: AgentHello
    seen_at: datetime


def record_hello(session: Session, hello: AgentHello, now: datetime, *, sole: bool) -> None:
    """Store an agent and its devices. Devices it no longer names are absent; `sole`: it is the only
    agent, so every device that it does not name is.
    """
    agent = session.get(tables.Agent, hello.agent_id)
    said: dict[str, Any] = {
        "host": hello.host,
        "version": hello.version,
        "protocol": hello.protocol,
        "missing": [entry.model_dump() for entry in hello.missing],
        "seen_at": now,
    }
    if agent is None:
        session.add(tables.Agent(agent_id=hello.agent_id, **said))
    else:
        agent.sqlmodel_update(said)
    session.flush()
    for known in session.exec(select(tables.Device)):
        if sole or known.agent_id == hello.agent_id:
            known.present = False
    for device in hello.devices:
        _record_device(session, hello.agent_id, device)


def _record_device(session: Session, agent_id: str, device: Device) -> None:
    record_environment(session, device.environment)
    said: dict[str, Any] = device.model_dump(exclude={"environment", "device_id"})
    said |= {
        "delegates": list(device.delegates),
        "agent_id": agent_id,
        "environment_id": device.environment_id,
        "present": True,
    }
    row = session.get(tables.Device, device.device_id, with_for_update=True)
    if row is None:
        session.add(tables.Device(device_id=device.device_id, **said))
    else:
        row.sqlmodel_update(said)
    session.flush()


def record_environment(session: Session, fields: dict[str, str]) -> str:
    """Store an environment once; returns its id."""
    identity = environment_id(fields)
    if session.get(tables.Environment, identity) is None:
        session.add(tables.Environment(environment_id=identity, fields=fields))
        session.flush()
    return identity


def recorded_hello(session: Session) -> RecordedHello | None:
    """What the agent that was heard last said; None before the first."""
    agent = session.exec(select(tables.Agent).order_by(col(tables.Agent.seen_at).desc())).first()
    if agent is None:
        return None
    rows = session.exec(
        select(tables.Device, tables.Environment)
        .join(
            tables.Environment,
            col(tables.Environment.environment_id) == tables.Device.environment_id,
        )
        .where(tables.Device.agent_id == agent.agent_id, col(tables.Device.present))
        .order_by(col(tables.Device.device_id))
    )
    hello = AgentHello(
        protocol=agent.protocol,
        agent_id=agent.agent_id,
        host=agent.host,
        version=agent.version,
        devices=tuple(_device(device, environment) for device, environment in rows),
        missing=tuple(MissingDelegate.model_validate(entry) for entry in agent.missing),
    )
    return RecordedHello(hello, agent.seen_at)


def _device(row: tables.Device, environment: tables.Environment) -> Device:
    return Device.model_validate(
        {
            "device_id": row.device_id,
            "kind": row.kind,
            "api": row.api,
            "name": row.name,
            "vendor": row.vendor,
            "delegates": tuple(row.delegates),
            "exclusion_group": row.exclusion_group,
            "environment": environment.fields,
            "facts": row.facts,
            "labels": row.labels,
        }
    )


def groups(session: Session, device_ids: Sequence[str]) -> Mapping[str, str]:
    """Device id -> exclusion group."""
    rows = session.exec(
        select(tables.Device.device_id, tables.Device.exclusion_group).where(
            col(tables.Device.device_id).in_(device_ids)
        )
    )
    return dict(rows.all())


def slots(session: Session, device_ids: Sequence[str]) -> list[DeviceSlot]:
    """The devices with what occupies them: a live attempt makes each device of its group busy."""
    rows = session.exec(select(tables.Device).where(col(tables.Device.device_id).in_(device_ids)))
    live = select(tables.Attempt.exclusion_group).where(col(tables.Attempt.state).in_(tables.LIVE_WORDS))
    taken = set(session.exec(live))
    return [DeviceSlot(row.device_id, row.exclusion_group, busy=row.exclusion_group in taken) for row in rows]
