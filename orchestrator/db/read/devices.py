"""Queries devices as their agents described them last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from agent.wire.messages import AgentHello, Device, MissingDelegate
from orchestrator.db import tables


@dataclass(frozen=True, slots=True)
class RecordedHello:
    """A hello from the database, and when it arrived."""

    hello: AgentHello
    seen_at: datetime


def recorded_hello(session: Session) -> RecordedHello | None:
    """The latest hello of any agent; None before the first."""
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


def lab_hello(session: Session) -> AgentHello:
    """The present devices of every agent that takes work, as if one had named them all.

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
            "delegate_environments": row.delegate_environments,
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
