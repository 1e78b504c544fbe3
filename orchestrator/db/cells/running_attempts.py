"""Reads the attempts that run, and keeps the end of what their runners write."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Text, cast, delete, func, or_
from sqlmodel import Session, col, select

from agent.wire.messages import RunnerOutput
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.lifecycle import LIVE_ATTEMPT


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt under way. `cancel_asked`: a user wants it to end; `parked`: no process waits for its
    campaign; `stop_asked`: the orchestrator itself stops it; `overdue`: it is over its deadline.
    """

    attempt_id: str
    cell_id: str
    campaign_no: int
    device_id: str
    agent_id: str
    cancel_asked: bool
    parked: bool
    stop_asked: bool
    overdue: bool


def running(
    session: Session, now: datetime, attempt_ids: Sequence[str] | None = None
) -> list[RunningAttempt]:
    """Return the attempts under way: all of them, or those of `attempt_ids`."""
    query = (
        select(tables.Attempt, tables.Cell, tables.Campaign, tables.Device.agent_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.IS_LIVE)
    )
    if attempt_ids is not None:
        query = query.where(col(tables.Attempt.attempt_id).in_(attempt_ids))
    return [
        RunningAttempt(
            attempt_id=attempt.attempt_id,
            cell_id=cell.cell_id,
            campaign_no=cell.campaign_no,
            device_id=attempt.device_id,
            agent_id=agent_id,
            cancel_asked=cell.cancel_asked_at is not None or campaign.cancel_asked_at is not None,
            parked=campaign.parked,
            stop_asked=attempt.stop_asked,
            overdue=attempt.deadline_at is not None and attempt.deadline_at < now,
        )
        for attempt, cell, campaign, agent_id in session.exec(query)
    ]


@dataclass(frozen=True, slots=True)
class Silent:
    """An attempt that sent no message since `since`. It still holds its device."""

    attempt_id: str
    agent_id: str
    device_id: str
    since: datetime


def unwanted(session: Session, now: datetime) -> list[RunningAttempt]:
    """Return the attempts that a user cancelled, that no process waits for, or that are over their time."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            tables.IS_LIVE,
            or_(
                col(tables.Cell.cancel_asked_at).is_not(None),
                col(tables.Campaign.cancel_asked_at).is_not(None),
                col(tables.Campaign.parked),
                col(tables.Attempt.stop_asked),
                col(tables.Attempt.deadline_at) < now,
            ),
        )
    )
    # Ids alone first: almost always there is none, and no row of a cell with its plan is read.
    found = session.exec(query).all()
    return running(session, now, found) if found else []


def uses(session: Session, agent_id: str, sha256: str) -> bool:
    """Whether a live attempt of an agent uses this model, this labelled data or this data of an input."""
    # By text, which both engines compare alike: 64 hex digits are nothing else in this JSON.
    in_plan = cast(tables.Cell.plan, Text).contains(sha256, autoescape=True)
    in_inputs = cast(tables.Cell.inputs, Text).contains(sha256, autoescape=True)
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(
            tables.Device.agent_id == agent_id,
            tables.IS_LIVE,
            or_(col(tables.Cell.model_sha256) == sha256, in_plan, in_inputs),
        )
    )
    return session.exec(query.limit(1)).first() is not None


def of_agent(session: Session, agent_id: str) -> list[str]:
    """Ids of the attempts under way on an agent's devices."""
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.Device.agent_id == agent_id, tables.IS_LIVE)
    )
    return list(session.exec(query))


def silent(session: Session, before: datetime) -> list[Silent]:
    """Return the attempts that sent no message since `before`."""
    last = func.coalesce(tables.Attempt.heard_at, tables.Attempt.started_at, tables.Attempt.dispatched_at)
    rows = session.exec(
        select(tables.Attempt.attempt_id, tables.Device.agent_id, tables.Attempt.device_id, last)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .where(tables.IS_LIVE, last < before)
    )
    return [Silent(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Output:
    """The end of a runner's output; `start` characters came before it."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """Number of characters that the runner has written."""
        return self.start + len(self.text)


def of_attempt(session: Session, attempt_id: str) -> Output | None:
    """Return the output of an attempt's runner so far; None if it wrote none, or ended long ago."""
    row = session.get(tables.Output, attempt_id)
    return None if row is None else Output(row.start, row.text)


KEPT_CHARACTERS: Final = 16 * 1024
"""How many characters of one attempt are kept. Chosen: some screens of a terminal for `farm show --logs`;
larger ones are written anew with every piece. The end of a runner's whole output comes with its result.
"""


def append(turn: Turn, piece: RunnerOutput) -> None:
    """Add a piece. One that is known already, or of an attempt that has ended, is ignored."""
    attempt = turn.find_attempt(piece.attempt_id)
    if attempt is None or attempt.epoch != piece.epoch or attempt.state not in LIVE_ATTEMPT:
        return
    row = turn.get(tables.Output, piece.attempt_id)
    if row is None:
        _forget_ended(turn)  # here, where one is added: no other sweep is needed to keep the table small
        row = tables.Output(attempt_id=piece.attempt_id, start=piece.start, text="")
    known = row.start + len(row.text)  # pieces may be repeated, overlap, or leave a gap
    # PostgreSQL stores no NUL in a text.
    text = piece.text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if piece.start + len(text) <= known:
        return
    # A piece was lost: what was kept does not join on to this one.
    if piece.start > known:
        row.start, row.text = piece.start, text
    else:
        row.text += text[known - piece.start :]
    row.start += max(0, len(row.text) - KEPT_CHARACTERS)
    row.text = row.text[-KEPT_CHARACTERS:]
    turn.add(row)


def _forget_ended(turn: Turn) -> None:
    """Delete the output of ended attempts: the end of what they wrote is in their results."""
    live = select(tables.Attempt.attempt_id).where(tables.IS_LIVE)
    turn.connection().execute(delete(tables.Output).where(col(tables.Output.attempt_id).not_in(live)))
