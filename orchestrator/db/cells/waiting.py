"""Explains why a cell waits, and ends cells that have waited for as long as their campaign file lets them."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, TextClause, and_, func, or_, update
from sqlmodel import Session, col, select

from agent.wire.messages import Reason, ReasonCode
from orchestrator.db import events, tables
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.devices.states import occupants, why_unwilling
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import candidate_queries
from orchestrator.policy.assign import Occupancy
from orchestrator.policy.attempt_ends import Moves
from orchestrator.policy.blocks import Refining, kept_busy
from orchestrator.policy.lifecycle import LIVE_ATTEMPT, AttemptState, CellState, move_cell
from orchestrator.policy.reservation import in_force, in_the_way
from orchestrator.policy.selectors import is_class, parse_line
from orchestrator.policy.why import CellFacts, DeviceFacts, Occupant
from orchestrator.results.events import EventKind


def cell_facts(
    session: Session, cell_id: str, now: datetime, silent_before: datetime | None, scheduler: str
) -> CellFacts:
    """Everything that decides when a cell runs. `scheduler`: why no process schedules, else empty.

    `silent_before`: agents without a message since then get no work; None: the one agent is the
    scheduler's.
    """
    cell = session.get_one(tables.Cell, cell_id)
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    holders = occupants(session, now)
    tried = _attempts_of(session, cell)
    live = next((attempt for attempt in tried if attempt.state in LIVE_ATTEMPT), None)
    failures = [a for a in tried if a.state == "failed" and a.attempt_no > cell.retried_after]
    position, ahead_s = _ahead(session, cell)
    return CellFacts(
        cell_id=cell.cell_id,
        state=cell.state,
        line=cell.line,
        reason=": ".join(filter(None, (cell.reason_code, cell.reason_text))),
        waits_since=max(filter(None, (campaign.created_at, tried[-1].ended_at if tried else None))),
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
        devices=tuple(_device_facts(session, cell, campaign, holders, silent_before, now)),
        own=next((o for o in holders if o.cell_id == cell.cell_id), None),
        job_limit_s=cell.soft_limit_s,
        job_started=None if live is None else live.started_at,
        heard_at=None if live is None else live.heard_at,
        scheduler=scheduler,
        queue_until=cell.queue_until,
    )


def first_queued(session: Session, campaign_no: int, limit: int) -> list[tuple[str, str]]:
    """Return the waiting cells of a campaign in the order of their start: id, and model on delegate."""
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


def _device_facts(
    session: Session,
    cell: tables.Cell,
    campaign: tables.Campaign,
    holders: Sequence[Occupant],
    silent_before: datetime | None,
    now: datetime,
) -> list[DeviceFacts]:
    known = session.exec(
        select(tables.Device, tables.Agent)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .order_by(col(tables.Device.device_id))
    ).all()
    devices = [device for device, _ in known]
    groups = {device.device_id: device.exclusion_group for device in devices}
    checked = _lines_with_checks(session)
    had = _devices_of_siblings(session, cell)
    found = []
    for device, agent in known:
        if not _serves(device, cell.line):
            continue
        # An attempt here, or one on a device that excludes this one.
        holder = next(
            (o for o in holders if not Occupancy([groups[o.device_id]]).free(device.exclusion_group)), None
        )
        found.append(
            DeviceFacts(
                device.device_id,
                device.present,
                why_unwilling(agent, silent_before),
                device.quarantine_text if device.quarantined_at else None,
                device.device_id in checked,
                device.rests_until,
                holder,
                _reserved(device, devices, campaign, now),
                had.get(device.device_id, ""),
            )
        )
    return found


def _devices_of_siblings(session: Session, cell: tables.Cell) -> dict[str | None, str]:
    """Return the devices that the other cells of a cell's class have, with the cell that has each."""
    if cell.siblings is None:
        return {}
    other = tables.Cell
    query = select(other.device_id, other.cell_id).where(
        other.campaign_no == cell.campaign_no,
        other.siblings == cell.siblings,
        other.cell_id != cell.cell_id,
        col(other.device_id).is_not(None),
    )
    return dict(session.exec(query).all())


def _reserved(
    device: tables.Device, known: Sequence[tables.Device], campaign: tables.Campaign, now: datetime
) -> str:
    """Explain which reservation of another user keeps a campaign from a device; empty if none does."""
    host = [other for other in known if other.agent_id == device.agent_id]
    present = [other for other in host if other.present]
    # With a baseline the cell takes a larger group, and a reservation of the baseline's device counts, too.
    group = kept_busy(device, present, campaign.baseline_kind)
    held = in_the_way(in_force(host, now), group, campaign.submitted_by)
    if held is None:
        return ""
    if held.device_id == device.device_id:
        return f"reserved {held}"
    return f"{held.device_id}, which excludes it, is reserved {held}"


def _lines_with_checks(session: Session) -> set[str]:
    """Devices for which a health check waits or runs."""
    query = (
        select(tables.Cell.line)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(tables.Campaign.purpose == tables.HEALTH, tables.IS_OPEN)
    )
    return set(session.exec(query))


def _serves(device: tables.Device, line: str) -> bool:
    return parse_line(line).takes(device) if is_class(line) else device.device_id == line


def _ahead(session: Session, cell: tables.Cell) -> tuple[int, float]:
    """Estimate how many cells of its line, and how many seconds of work, are before it.

    These are the earlier ones of its campaign, those of higher priority, and as many of each other campaign
    of its priority, as campaigns of one priority take turns.
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
    """Return number and expected seconds of the queued cells in its line that fulfil `which`."""
    table = tables.Cell
    query = (
        select(func.count(), func.coalesce(func.sum(table.expected_s), 0.0))
        .join(tables.Campaign, col(tables.Campaign.no) == table.campaign_no)
        .where(tables.IS_QUEUED, table.line == cell.line, *which)
    )
    count, seconds = session.exec(query).one()
    return int(count), float(seconds)


def are_overdue(now: datetime) -> tuple[ColumnElement[bool] | TextClause, ...]:
    """Conditions of cells, joined with campaigns: of one that is paused or parked none waits for a device."""
    return (
        tables.IS_QUEUED,
        col(tables.Cell.queue_until) <= now,
        ~col(tables.Campaign.parked),
        col(tables.Campaign.paused_at).is_(None),
    )


def is_any_overdue(session: Session, now: datetime) -> bool:
    """Whether there is one; by the index of limits alone."""
    query = (
        select(tables.Cell.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(*are_overdue(now))
    )
    return session.exec(query.limit(1)).first() is not None


def start_clock(cell: tables.Cell, now: datetime) -> None:
    """Set the time at which a cell that begins to wait is given up."""
    limit_s = cell.queue_limit_s
    cell.queue_until = None if limit_s is None else now + timedelta(seconds=limit_s)
    ends_at = None if cell.refines is None else Refining.read(cell.refines).ends_at
    if ends_at is not None:
        cell.queue_until = min(ends_at, cell.queue_until or ends_at)


def wait_again(turn: Turn, cell: tables.Cell, moves: Moves, now: datetime) -> None:
    """Let a cell wait for another attempt, after the end of one."""
    # The cell of an attempt that was given up waits already, when the result arrives after all.
    if cell.state != CellState.QUEUED:
        cell.state = move_cell(CellState(cell.state), CellState.QUEUED).value
    if not moves.goes_on and not cell_ends.stands(cell):
        cell.device_id = None  # a cell of a class may go to another unit, and its siblings to this one
    cell.not_before = now + timedelta(seconds=moves.cell.delay_s)
    start_clock(cell, now)
    kind: EventKind = "retry" if moves.attempt.state is AttemptState.FAILED else "interrupted"
    events.add(turn, cell, kind, cell_ends.sentence(moves.cell.reason), now)


def restart_clocks(turn: Turn, campaign: tables.Campaign, now: datetime) -> None:
    """Let the cells of a campaign wait from now on: nothing of it could start in the time before."""
    limit = col(tables.Cell.queue_limit_s)
    of_campaign = (
        col(tables.Cell.campaign_no) == campaign.no,
        col(tables.Cell.state) == CellState.QUEUED.value,
    )
    # A file has few different limits; each is one statement, however many cells wait.
    for seconds in turn.exec(select(limit).where(*of_campaign, limit.is_not(None)).distinct()).all():
        until = now + timedelta(seconds=seconds or 0.0)
        turn.exec(update(tables.Cell).where(*of_campaign, limit == seconds).values(queue_until=until))


def end_overdue(turn: Turn, now: datetime) -> int:
    """End the cells that have waited too long, with the reason. Returns how many.

    They have failed; those to which blocks were to be added are as they were.
    """
    cells = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(*are_overdue(now))
    ).all()
    refined = [cell for cell in cells if cell.refines is not None]
    others = [cell for cell in cells if cell.refines is None]
    time_over = Reason(code=ReasonCode.CANCELLED, text="the time for more blocks is over")
    cell_ends.finish_all(turn, [(cell, CellState.CANCELLED, time_over) for cell in refined], now)
    cell_ends.finish_all(turn, [(cell, CellState.FAILED, _reason(cell)) for cell in others], now)
    return len(cells)


def _reason(cell: tables.Cell) -> Reason:
    waited = timedelta(seconds=round(cell.queue_limit_s or 0.0))
    return Reason(
        code=ReasonCode.QUEUE_LIMIT,
        text=f"no device of {cell.line} took it within {waited} (h:mm:ss), its limits.queue; `farm devices` "
        "says what they do; then farm retry, or a longer limit",
    )
