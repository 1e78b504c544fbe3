"""Queries the devices that are lost: the farm took them out for their faults, or their agent is silent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Literal, TypeAlias

from sqlalchemy import or_
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.policy.lifecycle import MAX_DEVICE_FAULTS

Loss: TypeAlias = Literal["device_faults", "agent_silent"]

RECOVERED_ONCE_IN: Final = timedelta(hours=1)
"""For how long a device is not recovered again. Chosen: a machine that is lost again within an hour needs a
person; switching it off and on more often would only wear it out and disturb what else runs there.
"""


@dataclass(frozen=True, slots=True)
class LostDevice:
    """A device to recover, and why it counts as lost."""

    device_id: str
    agent_id: str
    loss: Loss


def lost(session: Session, silent_before: datetime | None, now: datetime) -> list[LostDevice]:
    """The devices whose recovery is due. `silent_before`: whose agent's last message is older; None: the farm
    itself has not listened for long enough to call an agent silent.

    A silent agent is one loss, whatever it has: its first device stands for all of them.
    """
    agent, device = tables.Agent, tables.Device
    out = col(device.quarantined_at).is_not(None)
    silent = col(agent.heard_at) < silent_before if silent_before is not None else out
    rows = session.exec(
        select(agent, device)
        .join(agent, col(agent.agent_id) == device.agent_id)
        .where(col(device.present), agent.state == tables.AGENT_ACTIVE, col(agent.refused).is_(None))
        .where(or_(out, silent))
        .order_by(col(device.agent_id), col(device.device_id))
    )
    found: list[LostDevice] = []
    for _, group in groupby(rows, key=lambda row: row[0].agent_id):
        found += _of_agent(list(group), silent_before, now)
    return found


def _of_agent(
    rows: Sequence[tuple[tables.Agent, tables.Device]], silent_before: datetime | None, now: datetime
) -> Iterator[LostDevice]:
    agent, first = rows[0]
    if silent_before is not None and agent.heard_at is not None and agent.heard_at < silent_before:
        last = max((at for _, device in rows if (at := _last(device))), default=None)
        if _is_due(agent.heard_at, last, now):
            yield LostDevice(first.device_id, agent.agent_id, "agent_silent")
        return
    for _, device in rows:
        # What a person took out has fewer faults, and is a person's to put back.
        by_the_farm = len(device.faulty_cells) >= MAX_DEVICE_FAULTS
        if by_the_farm and device.quarantined_at and _is_due(device.quarantined_at, _last(device), now):
            yield LostDevice(device.device_id, agent.agent_id, "device_faults")


def _last(device: tables.Device) -> datetime | None:
    """When the last recovery of a device ended, or began where its end is not known."""
    if not device.recoveries:
        return None
    newest = device.recoveries[-1]
    return datetime.fromisoformat(newest["ended_at"] or newest["began_at"])


def _is_due(lost_at: datetime, last: datetime | None, now: datetime) -> bool:
    """Whether this loss came after the last recovery, and the hour after that is over."""
    return last is None or (last < lost_at and now - last >= RECOVERED_ONCE_IN)
