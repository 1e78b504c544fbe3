"""Reads the states of devices, and keeps their reservations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import func
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UsageError
from orchestrator.policy.assign import Occupancy
from orchestrator.policy.reservation import Reservation, in_force, in_the_way, require_share, reservation_of
from orchestrator.policy.why import Occupant
from orchestrator.results.device_noise import DeviceNoise, noise_from


def all_of_them(session: Session, now: datetime) -> Sequence[Reservation]:
    """Every reservation in force now, by device."""
    query = select(tables.Device).where(col(tables.Device.reserved_until) > now)
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)


def of_host(session: Session, agent_id: str, now: datetime) -> Sequence[Reservation]:
    """Return the reservations of one agent's devices that are in force."""
    query = select(tables.Device).where(
        tables.Device.agent_id == agent_id, col(tables.Device.reserved_until) > now
    )
    rows = session.exec(query.order_by(col(tables.Device.device_id))).all()
    return in_force(rows, now)


def reserve(turn: Turn, device: tables.Device, by: str, until: datetime, reason: str, now: datetime) -> int:
    """Reserve a device, or change the end of a reservation that the same one has.

    Returns how many attempts of others still run where they exclude it. Raises `UsageError` where another
    one's reservation is in the way.
    """
    other = in_the_way(of_host(turn, device.agent_id, now), device.exclusion_group, by)
    if other is not None:
        where = "" if other.device_id == device.device_id else f"{other.device_id}, which excludes it, "
        raise UsageError(
            f"{device.device_id} cannot be reserved: {where}is reserved {other}; its holder or an "
            f"administrator ends that: farm devices release {other.device_id}"
        )
    device.reserved_by, device.reserved_until, device.reserved_text = by, until, reason or None
    return _running_beside(turn, Reservation(device.device_id, device.exclusion_group, by, until))


def require_share_of(turn: Turn, device: tables.Device, by: str, until: datetime, now: datetime) -> None:
    """Raise `UsageError` where this user may not reserve the device: `policy.reservation.require_share`."""
    require_share(device, all_of_them(turn, now), tables.count(turn, tables.Device), by, until, now)


def release(device: tables.Device, now: datetime) -> None:
    """End the reservation of a device; whose it was stays known, for the pause before the next one."""
    device.reserved_until, device.reserved_text = now, None


def _running_beside(turn: Turn, held: Reservation) -> int:
    rows = turn.exec(
        select(tables.Device.exclusion_group, tables.Campaign.submitted_by, func.count())
        .join(tables.Attempt, col(tables.Attempt.device_id) == tables.Device.device_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_LIVE)
        .group_by(tables.Device.exclusion_group, tables.Campaign.submitted_by)
    )
    return sum(count for group, user, count in rows if in_the_way([held], group, user) is not None)


DEVICE_STATES: Final = (
    "idle", "busy", "excluded", "resting", "reserved", "quarantined", "unavailable", "absent",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device as operators see it. `state`: one of `DEVICE_STATES`; `note` says why.

    `reservation`: who alone gets new jobs there, whatever its state. `recoveries`: runs of the operator's
    command, the newest last, each with `began_at`, `ended_at`, `loss`, `outcome` and `text`.
    """

    device_id: str
    agent_id: str
    kind: str
    name: str
    delegates: tuple[str, ...]
    environment_id: str
    exclusion_group: str
    labels: Mapping[str, str]
    state: str
    note: str
    cooldown_s: float
    cell_id: str | None
    cell: str
    left_s: float | None
    noise: DeviceNoise | None = None
    reservation: Reservation | None = None
    recoveries: tuple[Mapping[str, str | None], ...] = ()


def device_states(session: Session, now: datetime, silent_before: datetime | None) -> list[DeviceState]:
    """Every device that an agent ever named, with its present state."""
    occupied = {occupant.device_id: occupant for occupant in occupants(session, now)}
    excluded = Occupancy(_groups(session, occupied))
    rows = session.exec(
        select(tables.Device, tables.Agent)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(tables.Device.agent_id != tables.IMPORTS)
        .order_by(col(tables.Device.agent_id), col(tables.Device.device_id))
    )
    reserved = all_of_them(session, now)
    found = []
    for device, agent in rows:
        holder = occupied.get(device.device_id)
        held = reservation_of(device, now)
        # Nobody is called "": without a reservation of its own, any of a device beside it counts.
        beside = in_the_way(reserved, device.exclusion_group, "" if held is None else held.by)
        state, note = _standing(device, why_unwilling(agent, silent_before), now)
        if state == "idle" and holder is not None:
            state, note = "busy", holder.phase
        elif state == "idle" and not excluded.free(device.exclusion_group):
            state, note = "excluded", "something runs beside it"
        elif state == "idle" and held is not None:
            state, note = "reserved", str(held)
        elif state == "idle" and beside is not None:
            state, note = "excluded", f"{beside.device_id} beside it is reserved {beside}"
        if held is not None and state != "reserved":
            note = ", ".join(filter(None, (note, f"reserved {held}")))
        found.append(
            DeviceState(
                device_id=device.device_id,
                agent_id=device.agent_id,
                kind=device.kind,
                name=device.name,
                delegates=tuple(device.delegates),
                environment_id=device.environment_id,
                exclusion_group=device.exclusion_group,
                labels=dict(device.labels),
                state=state,
                note=note,
                cooldown_s=device.cooldown_s,
                cell_id=None if holder is None else holder.cell_id,
                cell="" if holder is None else holder.what,
                left_s=None if holder is None else holder.left_s,
                noise=noise_from(device.noise),
                recoveries=tuple(device.recoveries or ()),
                reservation=held,
            )
        )
    return found


def _standing(device: tables.Device, unwilling: str, now: datetime) -> tuple[str, str]:
    if not device.present:
        return "absent", "its agent's last hello did not name it"
    if unwilling:
        return "unavailable", unwilling
    if device.quarantined_at is not None:
        return "quarantined", device.quarantine_text or ""
    if device.rests_until is not None and device.rests_until > now:
        return "resting", f"{(device.rests_until - now).total_seconds():.0f} s more"
    return "idle", ""


def why_unwilling(agent: tables.Agent, silent_before: datetime | None) -> str:
    """Why an agent gets no work; empty where it does."""
    if agent.refused:
        return f"agent {agent.agent_id} is refused: {agent.refused}"
    if agent.state != tables.AGENT_ACTIVE:
        return f"agent {agent.agent_id} is {agent.state}"
    if silent_before is not None and (agent.heard_at is None or agent.heard_at < silent_before):
        since = "yet" if agent.heard_at is None else f"since {agent.heard_at:%H:%M:%S} UTC"
        return f"agent {agent.agent_id} has sent no message {since}"
    return ""


def _groups(session: Session, device_ids: Mapping[str, Any]) -> list[str]:
    query = select(tables.Device.exclusion_group).where(col(tables.Device.device_id).in_(list(device_ids)))
    return list(session.exec(query))


def occupants(session: Session, now: datetime) -> list[Occupant]:
    """Return the attempts that hold devices now."""
    rows = session.exec(
        select(tables.Attempt, tables.Cell)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .where(tables.IS_LIVE)
    )
    return [
        Occupant(
            attempt.attempt_id,
            cell.cell_id,
            attempt.device_id,
            f"{cell.model} on {cell.delegate}",
            attempt.phase,
            attempt.started_at or attempt.dispatched_at,
            max(0.0, cell.expected_s - (now - (attempt.started_at or now)).total_seconds()),
        )
        for attempt, cell in rows
    ]
