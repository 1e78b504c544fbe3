"""Attempts: picking a waiting cell, starting a try, following it, and ending it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, or_
from sqlmodel import Session, col, select

from agent.messages import JobSpec, MeasurePlan, Reason, ReasonCode
from orchestrator.db import events, identity, tables
from orchestrator.db.results import input_specs
from orchestrator.events import EventKind
from orchestrator.lifecycle import (
    AttemptEnd,
    AttemptState,
    CellState,
    Settled,
    move_attempt,
    move_cell,
    settle,
)
from orchestrator.scheduler import Assignment, WaitingCell

HARD_LIMIT_AFTER_S = 10.0
DEADLINE_AFTER_S = 60.0


@dataclass(frozen=True, slots=True)
class LiveAttempt:
    """A try that is under way. `cancel_asked`: a user wants it to end; `parked`: nobody waits for it."""

    attempt_id: str
    cell_id: str
    campaign_no: int
    device_id: str
    cancel_asked: bool
    parked: bool
    stop_asked: bool
    overdue: bool


def waiting(session: Session, device_ids: Iterable[str], now: datetime) -> list[WaitingCell]:
    """The first cell in line for each device; cells of parked or cancelled campaigns stand in no line."""
    found = []
    for device_id in device_ids:
        cell = session.exec(
            select(tables.Cell)
            .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
            .where(
                tables.Cell.state == CellState.QUEUED.value,
                tables.Cell.target == device_id,
                or_(col(tables.Cell.not_before).is_(None), col(tables.Cell.not_before) <= now),
                ~col(tables.Campaign.parked),
                col(tables.Campaign.cancel_asked_at).is_(None),
            )
            .order_by(col(tables.Cell.rank), col(tables.Cell.campaign_no), col(tables.Cell.position))
            .limit(1)
        ).first()
        if cell is not None:
            found.append(WaitingCell(cell.cell_id, device_id, cell.rank, cell.campaign_no, cell.position))
    return found


def still_waiting(session: Session, cell: tables.Cell) -> bool:
    """Whether a cell that was picked a moment ago is still to be had."""
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    return cell.state == CellState.QUEUED and not campaign.parked and campaign.cancel_asked_at is None


def begin(session: Session, assignment: Assignment, now: datetime) -> JobSpec:
    """Open an attempt: the device's epoch grows, the cell is dispatched. Returns the job to offer.

    Raises `IllegalMoveError` where the cell does not wait any more.
    """
    cell = session.get_one(tables.Cell, assignment.cell_id, with_for_update=True)
    device = session.get_one(tables.Device, assignment.device_id, with_for_update=True)
    cell.state = move_cell(CellState(cell.state), CellState.DISPATCHED).value
    device.epoch += 1
    last = session.exec(
        select(func.max(tables.Attempt.attempt_no)).where(tables.Attempt.cell_id == cell.cell_id)
    ).one()
    attempt = tables.Attempt(
        attempt_id=identity.attempt_id(),
        cell_id=cell.cell_id,
        attempt_no=(last or 0) + 1,
        device_id=device.device_id,
        exclusion_group=device.exclusion_group,
        epoch=device.epoch,
        state=AttemptState.DISPATCHED.value,
        dispatched_at=now,
    )
    session.add(attempt)
    events.add(session, cell, "dispatched", f"to {device.device_id}", now)
    session.flush()
    return _job(session, cell, attempt)


def _job(session: Session, cell: tables.Cell, attempt: tables.Attempt) -> JobSpec:
    return JobSpec(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        cell_id=cell.cell_id,
        epoch=attempt.epoch,
        device_id=attempt.device_id,
        model_id=cell.model,
        model_sha256=cell.model_sha256,
        model_bytes=session.get_one(tables.Model, cell.model_sha256).size_bytes,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=cell.delegate_options,
        plan=MeasurePlan.model_validate(cell.plan),
        inputs=input_specs(cell.inputs),
        soft_limit_s=cell.soft_limit_s,
        hard_limit_s=cell.soft_limit_s + HARD_LIMIT_AFTER_S,
    )


def started(session: Session, attempt_id: str, epoch: int, now: datetime) -> bool:
    """The runner is about to start; its deadline begins. False for a message that means nothing now."""
    attempt = session.get(tables.Attempt, attempt_id, with_for_update=True)
    if attempt is None or attempt.epoch != epoch or attempt.state != AttemptState.DISPATCHED:
        return False
    cell = session.get_one(tables.Cell, attempt.cell_id, with_for_update=True)
    attempt.state = move_attempt(AttemptState(attempt.state), AttemptState.RUNNING).value
    attempt.started_at = now
    attempt.deadline_at = now + timedelta(seconds=cell.soft_limit_s + HARD_LIMIT_AFTER_S + DEADLINE_AFTER_S)
    cell.state = move_cell(CellState(cell.state), CellState.RUNNING).value
    events.add(session, cell, "started", f"attempt {attempt.attempt_no} on {attempt.device_id}", now)
    return True


def note_phase(session: Session, attempt_id: str, epoch: int, phase: str) -> None:
    """What the runner does now."""
    attempt = session.get(tables.Attempt, attempt_id)
    if attempt is not None and attempt.epoch == epoch and attempt.state in tables.LIVE_WORDS:
        attempt.phase = phase


def ask_to_stop(session: Session, attempt_ids: Iterable[str]) -> None:
    """Remember that the orchestrator itself stops these attempts: their end is nobody's fault."""
    for attempt_id in attempt_ids:
        session.get_one(tables.Attempt, attempt_id, with_for_update=True).stop_asked = True


def end(session: Session, attempt: tables.Attempt, ended: AttemptEnd, now: datetime) -> Settled:
    """Close an attempt and settle its cell. Raises `IllegalMoveError` for a cell that has ended."""
    cell = session.get_one(tables.Cell, attempt.cell_id, with_for_update=True)
    attempt.state = move_attempt(AttemptState(attempt.state), ended.state).value
    attempt.reason_code = ended.reason.code.value
    attempt.reason_text = ended.reason.text
    attempt.ended_at = now
    session.flush()
    settled = settle(_ends(session, cell.cell_id), cancel_asked=_cancel_asked(session, cell))
    if settled.state is CellState.QUEUED:
        if cell.state != CellState.QUEUED:
            cell.state = move_cell(CellState(cell.state), CellState.QUEUED).value
        cell.not_before = now + timedelta(seconds=settled.delay_s)
        kind: EventKind = "retry" if ended.state is AttemptState.FAILED else "interrupted"
        events.add(session, cell, kind, _sentence(settled.reason), now)
    else:
        finish(session, cell, settled.state, settled.reason, now)
    session.flush()
    return settled


def finish(
    session: Session,
    cell: tables.Cell,
    state: CellState,
    reason: Reason,
    now: datetime,
    kind: EventKind = "finished",
) -> None:
    """Write a cell's terminal state, once."""
    cell.state = move_cell(CellState(cell.state), state).value
    cell.reason_code = reason.code.value
    cell.reason_text = reason.text
    cell.ended_at = now
    cell.not_before = None
    events.add(session, cell, kind, _sentence(reason), now)


def _sentence(reason: Reason) -> str:
    return "" if reason.code is ReasonCode.COMPLETED else f"{reason.code.value}: {reason.text}"


def _ends(session: Session, cell_id: str) -> list[AttemptEnd]:
    rows = session.exec(
        select(tables.Attempt)
        .where(tables.Attempt.cell_id == cell_id, col(tables.Attempt.state).not_in(tables.LIVE_WORDS))
        .order_by(col(tables.Attempt.attempt_no))
    )
    return [
        AttemptEnd(
            AttemptState(row.state),
            Reason(code=ReasonCode(str(row.reason_code)), text=row.reason_text or ""),
        )
        for row in rows
    ]


def _cancel_asked(session: Session, cell: tables.Cell) -> bool:
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    return cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None


def live(session: Session, now: datetime, attempt_ids: Sequence[str] | None = None) -> list[LiveAttempt]:
    """Every attempt under way, with what is wanted of it."""
    query = (
        select(tables.Attempt, tables.Cell, tables.Campaign)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(col(tables.Attempt.state).in_(tables.LIVE_WORDS))
    )
    if attempt_ids is not None:
        query = query.where(col(tables.Attempt.attempt_id).in_(attempt_ids))
    return [
        LiveAttempt(
            attempt_id=attempt.attempt_id,
            cell_id=cell.cell_id,
            campaign_no=cell.campaign_no,
            device_id=attempt.device_id,
            cancel_asked=cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None,
            parked=campaign.parked,
            stop_asked=attempt.stop_asked,
            overdue=attempt.deadline_at is not None and attempt.deadline_at < now,
        )
        for attempt, cell, campaign in session.exec(query)
    ]
