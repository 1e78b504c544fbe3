"""Stores the end of an attempt exactly once, even if messages are repeated, late or lost."""

from datetime import datetime
from typing import Literal, TypeAlias

from agent.wire.messages import JobRefused, JobResult, Reason, ReasonCode, Status
from orchestrator.db import events
from orchestrator.db.cells import attempts, running_attempts
from orchestrator.db.engine.turn import AttemptRows, Turn
from orchestrator.db.results import past as results
from orchestrator.policy.attempt_ends import MEASURED, attempt_end, moves_of
from orchestrator.policy.blocks import continued, unfinished
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import LIVE_ATTEMPT

Ingested: TypeAlias = Literal["counted", "superseded", "late", "duplicate", "conflict", "unknown"]


def apply(turn: Turn, message: JobResult, now: datetime) -> Ingested:
    """Store a result. Whatever it returns, the agent gets its receipt once this is committed.

    counted: its cell shows it · superseded: its attempt ended, the cell tries again · late: stored,
    never counted · duplicate: known already · conflict: another result of this attempt is stored, and
    stays · unknown: no such attempt here.
    """
    rows = turn.find_attempt_rows(message.attempt_id)
    if rows is None:
        return "unknown"
    attempt, cell = rows.attempt, rows.cell
    content = digest(message.model_dump(mode="json"))
    if rows.result is not None:
        return "duplicate" if rows.result.content == content else "conflict"
    own = (attempt.epoch, attempt.cell_id, attempt.device_id)
    # A message with another epoch, cell or device than the attempt has decides nothing: it is evidence alone.
    is_its_own = (message.epoch, message.cell_id, message.device_id) == own
    early = message.measurement is not None and message.measurement.ended_early
    known = attempts.known_of(rows)
    end = attempt_end(message.status, message.reason, stop_asked=attempt.stop_asked)
    moves = moves_of(known, end, early=early) if is_its_own else None
    if moves is not None:
        attempts.end(turn, rows, moves, now)
    elif end.state in MEASURED:
        events.add(turn, cell, "late", f"attempt {attempt.attempt_no}: {end.state.value}", now)
    counted = moves is not None and moves.counts
    result = results.store(turn, rows, message, end.reason, content, now, counted=counted, late=moves is None)
    if moves is None:
        return "late"
    if moves.counts:
        cell.shown_attempt_id = attempt.attempt_id
    if moves.goes_on:
        # On the device that the result is of, also where any unit of a class would have done before.
        cell.line = cell.device_id = result.device_id
        earlier = unfinished(message.measurement, result.environment_id, result.grade)
        cell.refines = continued(cell.refines, cell.rank, earlier)
    return "counted" if moves.counts else "superseded"


def refuse(turn: Turn, message: JobRefused, now: datetime) -> None:
    """End an attempt whose job the agent refused, like any failed one."""
    rows = turn.find_attempt_rows(message.attempt_id)
    if rows is not None and rows.attempt.epoch == message.epoch:
        _fail(turn, rows, message.reason, now)


def give_up(turn: Turn, attempt_id: str, reason: Reason, now: datetime) -> None:
    """End an attempt without a result. Does nothing where it has ended already."""
    rows = turn.find_attempt_rows(attempt_id)
    if rows is not None:
        _fail(turn, rows, reason, now)


def _fail(turn: Turn, rows: AttemptRows, reason: Reason, now: datetime) -> None:
    if rows.attempt.state not in LIVE_ATTEMPT:
        return
    # Without a result nothing tells against an attempt that the farm wanted to end.
    status = Status.CANCELLED if rows.attempt.stop_asked else Status.FAILED
    end = attempt_end(status, reason, stop_asked=rows.attempt.stop_asked)
    if moves := moves_of(attempts.known_of(rows), end):
        attempts.end(turn, rows, moves, now)


def lose(turn: Turn, attempt_id: str, reason: Reason, now: datetime) -> None:
    """Give an attempt up although its agent may still work on it.

    The device's epoch grows, so that a result of this attempt which comes later counts as late.
    """
    attempt = turn.attempt(attempt_id)
    turn.device(attempt.device_id).epoch += 1
    give_up(turn, attempt_id, reason, now)


def recover(turn: Turn, now: datetime) -> int:
    """End the attempts that a killed scheduler left open as `interrupted`. Returns their number."""
    left = running_attempts.running(turn, now)
    for attempt in left:
        text = "the scheduling process ended while this attempt ran"
        give_up(turn, attempt.attempt_id, Reason(code=ReasonCode.INTERRUPTED, text=text), now)
    return len(left)
