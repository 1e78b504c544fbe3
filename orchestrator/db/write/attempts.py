"""Attempts: picking a waiting cell, starting a try, following it, and ending it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy import Float, Update, bindparam, exists, func, literal, update
from sqlmodel import Session, col, select

from agent.wire.messages import JobSpec, MeasurePlan, Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.db.queue import candidate_queries
from orchestrator.db.write import events, identity, quarantine
from orchestrator.db.write.results import input_specs
from orchestrator.policy.assign import Assignment
from orchestrator.policy.lifecycle import (
    LIVE_ATTEMPT,
    AttemptEnd,
    AttemptState,
    CellState,
    Settled,
    move_attempt,
    move_cell,
    settle,
)
from orchestrator.results.events import EventKind

HARD_LIMIT_AFTER_S = 10.0
DEADLINE_AFTER_S = 60.0


def _charge_statement() -> Update:
    c = candidate_queries.campaign.c
    return (
        update(candidate_queries.campaign)
        .where(c.no == bindparam("number"))
        .values(
            served_s=c.served_s + bindparam("seconds", type_=Float),
            served_at=func.coalesce(bindparam("at", type_=tables.UtcDateTime), c.served_at),
        )
    )


def _close_statement() -> Update:
    """Mostly some cell is queued still: the first in line is found by its index (the order makes the engine
    take it), however many have ended.
    """
    cell, campaign = candidate_queries.cell, candidate_queries.campaign
    of_campaign = cell.c.campaign_no == bindparam("number")
    queued = select(cell.c.cell_id).where(of_campaign, tables.IS_QUEUED)
    first = queued.order_by(cell.c.line, cell.c.rank, cell.c.position).limit(1).scalar_subquery()
    is_open = exists(literal(1)).where(of_campaign, cell.c.state.in_(tables.OPEN_WORDS))
    this = (campaign.c.no == bindparam("number"), campaign.c.ended_at.is_(None))
    return (
        update(campaign)
        .where(*this, first.is_(None), ~is_open)
        .values(ended_at=bindparam("at", type_=tables.UtcDateTime))
    )


_CHARGE: Final = _charge_statement()
_CLOSE: Final = _close_statement()


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


def still_waiting(session: Session, cell: tables.Cell) -> bool:
    """Whether a cell that was picked a moment ago is still to be had."""
    campaign = turn.get_one(session, tables.Campaign, cell.campaign_no)
    wanted = not campaign.parked and campaign.paused_at is None and campaign.cancel_asked_at is None
    return cell.state == CellState.QUEUED and wanted


def begin(session: Session, assignment: Assignment, now: datetime) -> JobSpec:
    """Open an attempt: the device's epoch grows, the cell is dispatched. Returns the job to offer.

    Raises `IllegalMoveError` where the cell does not wait any more.
    """
    cell = turn.get_one(session, tables.Cell, assignment.cell_id, lock=True)
    device = turn.get_one(session, tables.Device, assignment.device_id, lock=True)
    cell.state = move_cell(CellState(cell.state), CellState.DISPATCHED).value
    cell.device_id = device.device_id
    device.epoch += 1
    before = turn.history(session, cell.cell_id)
    attempt = tables.Attempt(
        attempt_id=identity.attempt_id(),
        cell_id=cell.cell_id,
        attempt_no=before[-1].attempt_no + 1 if before else 1,
        device_id=device.device_id,
        exclusion_group=device.exclusion_group,
        epoch=device.epoch,
        state=AttemptState.DISPATCHED.value,
        dispatched_at=now,
    )
    turn.put(session, tables.Attempt, attempt.attempt_id, attempt)
    before.append(attempt)
    _charge(session, cell.campaign_no, cell.expected_s, now)
    events.add(session, cell, "dispatched", f"to {device.device_id}", now)
    return job(session, cell, attempt)


def _charge(session: Session, campaign_no: int, seconds: float, served_at: datetime | None = None) -> None:
    """Device-seconds that a campaign was given (or, negative, did not need); written once per transaction."""
    charges: dict[int, tuple[float, datetime | None]] = session.info.setdefault("charges", {})
    sum_s, last = charges.get(campaign_no, (0.0, None))
    charges[campaign_no] = (sum_s + seconds, served_at or last)
    turn.defer(session, ("charge", campaign_no), lambda session: _write_charge(session, campaign_no))


def _write_charge(session: Session, campaign_no: int) -> None:
    seconds, served_at = session.info["charges"].pop(campaign_no)
    turn.write_only(session, _CHARGE, number=campaign_no, seconds=seconds, at=served_at)


def job(session: Session, cell: tables.Cell, attempt: tables.Attempt) -> JobSpec:
    """What the agent is told of an attempt."""
    return JobSpec(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        cell_id=cell.cell_id,
        epoch=attempt.epoch,
        device_id=attempt.device_id,
        model_id=cell.model,
        model_sha256=cell.model_sha256,
        model_bytes=turn.get_one(session, tables.Model, cell.model_sha256).size_bytes,
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
    attempt = turn.get(session, tables.Attempt, attempt_id, lock=True)
    if attempt is None or attempt.epoch != epoch or attempt.state != AttemptState.DISPATCHED:
        return False
    cell = turn.get_one(session, tables.Cell, attempt.cell_id, lock=True)
    attempt.state = move_attempt(AttemptState(attempt.state), AttemptState.RUNNING).value
    attempt.started_at = now
    attempt.phase = ""
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
        turn.get_one(session, tables.Attempt, attempt_id, lock=True).stop_asked = True


def end(session: Session, attempt: tables.Attempt, ended: AttemptEnd, now: datetime) -> Settled:
    """Close an attempt and settle its cell. Raises `IllegalMoveError` for a cell that has ended."""
    cell = turn.get_one(session, tables.Cell, attempt.cell_id, lock=True)
    before = AttemptState(attempt.state)
    attempt.state = move_attempt(before, ended.state).value
    attempt.reason_code = ended.reason.code.value
    attempt.reason_text = ended.reason.text
    attempt.ended_at = now
    campaign = turn.get_one(session, tables.Campaign, cell.campaign_no)
    if before in LIVE_ATTEMPT:
        taken_s = (now - attempt.dispatched_at).total_seconds()
        _charge(session, cell.campaign_no, taken_s - cell.expected_s)
        quarantine.note(session, attempt, cell, ended, now)
    settled = settle(
        _ends(session, cell),
        cancel_asked=cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None,
    )
    if settled.state is CellState.QUEUED:
        if cell.state != CellState.QUEUED:
            cell.state = move_cell(CellState(cell.state), CellState.QUEUED).value
        cell.device_id = None
        cell.not_before = now + timedelta(seconds=settled.delay_s)
        kind: EventKind = "retry" if ended.state is AttemptState.FAILED else "interrupted"
        events.add(session, cell, kind, _sentence(settled.reason), now)
    else:
        finish(session, cell, settled.state, settled.reason, now)
        if campaign.purpose == tables.HEALTH:
            quarantine.checked(session, attempt, settled.state is CellState.DONE, now)
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
    finish_all(session, [(cell, state, reason)], now, kind)


def finish_all(
    session: Session,
    ends: Iterable[tuple[tables.Cell, CellState, Reason]],
    now: datetime,
    kind: EventKind = "finished",
) -> None:
    """Write the terminal states of many cells, and the end of the campaigns that are through with them."""
    campaigns = set()
    for cell, state, reason in ends:
        cell.state = move_cell(CellState(cell.state), state).value
        cell.reason_code = reason.code.value
        cell.reason_text = reason.text
        cell.ended_at = now
        cell.not_before = None
        events.add(session, cell, kind, _sentence(reason), now)
        campaigns.add(cell.campaign_no)
    for number in campaigns:
        turn.defer(session, ("close", number), partial(_close_ended, campaign_no=number, now=now))


def _close_ended(session: Session, campaign_no: int, now: datetime) -> None:
    """Note that a campaign has ended, once none of its cells is open."""
    turn.write_only(session, _CLOSE, number=campaign_no, at=now)


def _sentence(reason: Reason) -> str:
    return "" if reason.code is ReasonCode.COMPLETED else f"{reason.code.value}: {reason.text}"


def _ends(session: Session, cell: tables.Cell) -> list[AttemptEnd]:
    """The ends that count for a cell: those since the last time a user had it tried again."""
    rows = [
        row
        for row in turn.history(session, cell.cell_id)
        if row.attempt_no > cell.retried_after and row.state not in tables.LIVE_WORDS
    ]
    return [
        AttemptEnd(
            AttemptState(row.state),
            Reason(code=ReasonCode(str(row.reason_code)), text=row.reason_text or ""),
        )
        for row in rows
    ]


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
