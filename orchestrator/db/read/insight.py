"""What `farm why`, `farm status`, `farm devices` and `farm logs` look up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_
from sqlmodel import Session, col, select

from orchestrator.db import tables
from orchestrator.db.queue import candidate_queries
from orchestrator.policy.assign import Occupancy
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.selectors import is_class, parse_line
from orchestrator.policy.why import CellFacts, DeviceFacts, Occupant


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device as operators see it.

    `state`: idle | busy | excluded | resting | quarantined | unavailable | absent; `note` says why.
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


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a cell's history."""

    no: int
    at: datetime
    kind: str
    text: str


def counts(session: Session, suspect_before: datetime) -> dict[str, int]:
    """Open cells by state; `suspect`: attempts of which nothing was heard since; `paused` of the queued."""
    rows = session.exec(
        select(tables.Cell.state, func.count())
        .where(col(tables.Cell.state).in_(tables.OPEN_WORDS))
        .group_by(col(tables.Cell.state))
    )
    found = dict.fromkeys(tables.OPEN_WORDS, 0) | dict(rows.all())
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    silent = select(func.count()).select_from(tables.Attempt).where(tables.IS_LIVE, last < suspect_before)
    paused = (
        select(func.count())
        .select_from(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.IS_QUEUED, col(tables.Campaign.paused_at).is_not(None))
    )
    return found | {"suspect": session.exec(silent).one(), "paused": session.exec(paused).one()}


def history(session: Session, cell_id: str, after: int = 0) -> list[Moment]:
    """What happened to a cell, in order."""
    rows = session.exec(
        select(tables.Event)
        .where(tables.Event.cell_id == cell_id, col(tables.Event.no) > after)
        .order_by(col(tables.Event.no))
    )
    return [Moment(row.no or 0, row.at, row.kind, row.text) for row in rows]


def device_states(session: Session, now: datetime, silent_before: datetime | None) -> list[DeviceState]:
    """Every device that was ever named, with what it does now."""
    occupied = {occupant.device_id: occupant for occupant in _occupants(session, now)}
    excluded = Occupancy(_groups(session, occupied))
    rows = session.exec(
        select(tables.Device, tables.Agent)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .order_by(col(tables.Device.agent_id), col(tables.Device.device_id))
    )
    found = []
    for device, agent in rows:
        holder = occupied.get(device.device_id)
        state, note = _standing(device, _unwilling(agent, silent_before), now)
        if state == "idle" and holder is not None:
            state, note = "busy", holder.phase
        elif state == "idle" and not excluded.free(device.exclusion_group):
            state, note = "excluded", "something runs beside it"
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
            )
        )
    return found


def _standing(device: tables.Device, unwilling: str, now: datetime) -> tuple[str, str]:
    if not device.present:
        return "absent", "its agent did not name it last"
    if unwilling:
        return "unavailable", unwilling
    if device.quarantined_at is not None:
        return "quarantined", device.quarantine_text or ""
    if device.rests_until is not None and device.rests_until > now:
        return "resting", f"{(device.rests_until - now).total_seconds():.0f} s more"
    return "idle", ""


def _unwilling(agent: tables.Agent, silent_before: datetime | None) -> str:
    """Why an agent gets no work; empty where it does."""
    if agent.refused:
        return f"agent {agent.agent_id} is refused: {agent.refused}"
    if agent.state != tables.AGENT_ACTIVE:
        return f"agent {agent.agent_id} is {agent.state}"
    if silent_before is not None and (agent.heard_at is None or agent.heard_at < silent_before):
        heard = "never heard" if agent.heard_at is None else f"not heard since {agent.heard_at:%H:%M:%S} UTC"
        return f"agent {agent.agent_id} was {heard}"
    return ""


def cell_facts(
    session: Session, cell_id: str, now: datetime, silent_before: datetime | None, scheduler: str
) -> CellFacts:
    """Everything that decides when a cell runs. `scheduler`: why nobody schedules, else empty."""
    cell = session.get_one(tables.Cell, cell_id)
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    occupants = _occupants(session, now)
    failed = _attempts_of(session, cell)
    live = next((attempt for attempt in failed if attempt.state in tables.LIVE_WORDS), None)
    failures = [a for a in failed if a.state == "failed" and a.attempt_no > cell.retried_after]
    position, ahead_s = _ahead(session, cell)
    return CellFacts(
        cell_id=cell.cell_id,
        state=cell.state,
        line=cell.line,
        reason=": ".join(filter(None, (cell.reason_code, cell.reason_text))),
        waits_since=max(filter(None, (campaign.created_at, failed[-1].ended_at if failed else None))),
        not_before=cell.not_before,
        failures=len(failures),
        last_failure=failures[-1].reason_code or "" if failures else "",
        campaign=campaign.name,
        priority=-cell.rank,
        parked=campaign.parked,
        paused=campaign.paused_at is not None,
        cancelled=cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None,
        position=position,
        ahead_s=ahead_s,
        devices=tuple(_device_facts(session, cell.line, occupants, silent_before)),
        own=next((o for o in occupants if o.cell_id == cell.cell_id), None),
        job_limit_s=cell.soft_limit_s,
        job_started=None if live is None else live.started_at,
        heard_at=None if live is None else live.heard_at,
        scheduler=scheduler,
    )


def first_queued(session: Session, campaign_no: int, limit: int) -> list[tuple[str, str]]:
    """The cells of a campaign that wait, as they come: id, and model on delegate."""
    rows = session.exec(
        select(tables.Cell)
        .where(tables.Cell.campaign_no == campaign_no, tables.Cell.state == CellState.QUEUED.value)
        .order_by(col(tables.Cell.rank), col(tables.Cell.position))
        .limit(limit)
    )
    return [(cell.cell_id, f"{cell.model} on {cell.delegate}") for cell in rows]


def _attempts_of(session: Session, cell: tables.Cell) -> Sequence[tables.Attempt]:
    query = select(tables.Attempt).where(tables.Attempt.cell_id == cell.cell_id)
    return session.exec(query.order_by(col(tables.Attempt.attempt_no))).all()


def _occupants(session: Session, now: datetime) -> list[Occupant]:
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


def _groups(session: Session, device_ids: Mapping[str, Any]) -> list[str]:
    query = select(tables.Device.exclusion_group).where(col(tables.Device.device_id).in_(list(device_ids)))
    return list(session.exec(query))


def _device_facts(
    session: Session, line: str, occupants: Sequence[Occupant], silent_before: datetime | None
) -> list[DeviceFacts]:
    groups = dict(session.exec(select(tables.Device.device_id, tables.Device.exclusion_group)).all())
    checked = _lines_with_checks(session)
    found = []
    for device, agent in session.exec(
        select(tables.Device, tables.Agent)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .order_by(col(tables.Device.device_id))
    ):
        if not _serves(device, line):
            continue
        holder = next(
            (o for o in occupants if not Occupancy([groups[o.device_id]]).free(device.exclusion_group)), None
        )
        found.append(
            DeviceFacts(
                device.device_id,
                device.present,
                _unwilling(agent, silent_before),
                device.quarantine_text if device.quarantined_at else None,
                device.device_id in checked,
                device.rests_until,
                holder,
            )
        )
    return found


def _lines_with_checks(session: Session) -> set[str]:
    """Devices for which a health check waits or runs."""
    query = (
        select(tables.Cell.line)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.Campaign.purpose == tables.HEALTH, col(tables.Cell.state).in_(tables.OPEN_WORDS))
    )
    return set(session.exec(query))


def _serves(device: tables.Device, line: str) -> bool:
    return parse_line(line).takes(device) if is_class(line) else device.device_id == line


def _ahead(session: Session, cell: tables.Cell) -> tuple[int, float]:
    """About how many cells of its line, and how many seconds of work, come first: its campaign's earlier
    ones, those of higher priority, and of each campaign of its priority as many, for they take turns.
    """
    if cell.state != CellState.QUEUED:
        return 0, 0.0
    table = tables.Cell
    rank, number = col(table.rank), col(table.campaign_no)
    earlier = or_(rank < cell.rank, and_(rank == cell.rank, col(table.position) < cell.position))
    own, own_s = _sum(session, cell, number == cell.campaign_no, earlier)
    urgent, urgent_s = _sum(session, cell, number != cell.campaign_no, rank < cell.rank)
    position, seconds = own + urgent, own_s + urgent_s
    peers = (
        select(func.count(), func.avg(table.expected_s))
        .join(tables.Campaign, col(tables.Campaign.no) == table.campaign_no)
        .where(tables.IS_QUEUED, table.line == cell.line, rank == cell.rank, number != cell.campaign_no)
        .where(*candidate_queries.startable())
        .group_by(number)
    )
    for count, mean_s in session.exec(peers):
        turns = min(int(count), own)
        position, seconds = position + turns, seconds + turns * float(mean_s)
    return position, seconds


def _sum(session: Session, cell: tables.Cell, *which: ColumnElement[bool]) -> tuple[int, float]:
    """Number and expected seconds of the queued cells in its line that are `which`."""
    table = tables.Cell
    query = (
        select(func.count(), func.coalesce(func.sum(table.expected_s), 0.0))
        .join(tables.Campaign, col(tables.Campaign.no) == table.campaign_no)
        .where(tables.IS_QUEUED, table.line == cell.line, *which)
    )
    count, seconds = session.exec(query).one()
    return int(count), float(seconds)
