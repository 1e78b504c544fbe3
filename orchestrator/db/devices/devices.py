"""Queries and stores devices as their agents described them last."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from agent.wire.messages import AgentHello, Device, MissingDelegate, environment_id, expected_environment
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn


@dataclass(frozen=True, slots=True)
class RecordedHello:
    """A hello from the database, and when it arrived."""

    hello: AgentHello
    seen_at: datetime


def recorded_hello(session: Session) -> RecordedHello | None:
    """Return the latest hello of any agent; None before the first."""
    agent = session.exec(select(tables.Agent).order_by(col(tables.Agent.seen_at).desc())).first()
    if agent is None:
        return None
    rows = session.exec(
        select(tables.Device, tables.Environment)
        .join(tables.Environment, col(tables.Environment.environment_id) == tables.Device.environment_id)
        .where(tables.Device.agent_id == agent.agent_id, col(tables.Device.present))
        .order_by(col(tables.Device.device_id))
    )
    hello = AgentHello.like(
        agent,
        devices=tuple(_device(device, environment) for device, environment in rows),
        missing=tuple(MissingDelegate.model_validate(entry) for entry in agent.missing),
    )
    return RecordedHello(hello, agent.seen_at)


def lab_hello(session: Session) -> AgentHello:
    """Return the present devices of every agent that takes work, as if one agent had named them all.

    A delegate kind is missing where no device hosts it.
    """
    rows = session.exec(
        select(tables.Device, tables.Environment, tables.Agent)
        .join(tables.Environment, col(tables.Environment.environment_id) == tables.Device.environment_id)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(
            col(tables.Device.present),
            tables.Agent.state == tables.AGENT_ACTIVE,
            col(tables.Agent.refused).is_(None),
        )
        .order_by(col(tables.Device.device_id))
    ).all()
    found = tuple(_device(device, environment) for device, environment, _agent in rows)
    hosted = {kind for device in found for kind in device.delegates}
    missing = {
        entry["kind"]: f"agent {agent.agent_id}: {entry['reason']}"
        for _device_row, _environment, agent in rows
        for entry in agent.missing
        if entry["kind"] not in hosted
    }
    return AgentHello(
        agent_id="lab",
        host="",
        version="",
        devices=found,
        missing=tuple(MissingDelegate(kind=kind, reason=why) for kind, why in sorted(missing.items())),
    )


def _device(row: tables.Device, environment: tables.Environment) -> Device:
    return Device.like(row, environment=environment.fields)


def groups(session: Session, device_ids: Sequence[str]) -> Mapping[str, str]:
    """Device id -> exclusion group."""
    rows = session.exec(
        select(tables.Device.device_id, tables.Device.exclusion_group).where(
            col(tables.Device.device_id).in_(device_ids)
        )
    )
    return dict(rows.all())


def record_hello(turn: Turn, hello: AgentHello, now: datetime, *, sole: bool) -> None:
    """Store an agent and its devices. Devices it no longer names are absent; `sole`: it is the only
    agent, so every device that it does not name is.
    """
    agent = turn.get(tables.Agent, hello.agent_id)
    values: dict[str, Any] = {
        "host": hello.host,
        "version": hello.version,
        "protocol": hello.protocol,
        "missing": [entry.model_dump() for entry in hello.missing],
        "seen_at": now,
        "heard_at": now,
        "refused": None,
    }
    if agent is None:
        turn.add(tables.Agent(agent_id=hello.agent_id, **values))
    else:
        agent.sqlmodel_update(values)
    turn.flush()
    known = select(tables.Device).where(col(tables.Device.present))
    if not sole:
        known = known.where(tables.Device.agent_id == hello.agent_id)
    # All of them first: those that the hello names become present again below.
    for device_row in turn.exec(known):
        device_row.present = False
    for device in hello.devices:
        _record_device(turn, hello.agent_id, device, sole=sole)
    for device_id, epoch in hello.epochs.items():
        row = turn.get(tables.Device, device_id)
        if row is not None and row.agent_id == hello.agent_id:
            # A database that was restored from a backup must not hand out epochs that were used already.
            row.epoch = max(row.epoch, epoch)


def _record_device(turn: Turn, agent_id: str, device: Device, *, sole: bool) -> None:
    """Store a device. Exclusion groups are of one host: in a lab the agent's name goes in front."""
    record_environment(turn, device.environment)
    # What the farm itself knows of a device (epoch, faults, quarantine, reservation, noise) stays as it is.
    values: dict[str, Any] = device.model_dump(exclude={"environment", "device_id"})
    values |= {
        "delegates": list(device.delegates),
        "agent_id": agent_id,
        "exclusion_group": device.exclusion_group if sole else f"{agent_id}/{device.exclusion_group}",
        "environment_id": device.environment_id,
        "present": True,
    }
    row = turn.get(tables.Device, device.device_id, with_for_update=True)
    if row is None:
        turn.add(tables.Device(device_id=device.device_id, **values))
    else:
        row.sqlmodel_update(values)
    turn.flush()


def environment_of(turn: Turn, device: tables.Device, cell: tables.Cell) -> dict[str, str]:
    """Return the environment that the next result of a cell on a device is expected to have."""
    own = turn.environment(device.environment_id).fields
    return expected_environment(own, device.delegate_environments, cell.delegate_kind, cell.delegate_options)


def record_environment(turn: Turn, fields: dict[str, str]) -> str:
    """Store an environment once; returns its id."""
    identity = environment_id(fields)
    if turn.find_environment(identity) is None:
        row = tables.Environment(environment_id=identity, fields=fields)
        turn.put(tables.Environment, identity, row)
        # SQLAlchemy does not know that devices name this row: it may write theirs first, and be refused.
        turn.flush()
    return identity
