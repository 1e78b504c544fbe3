"""Stores the end of an attempt exactly once, even if messages are repeated, late or lost."""

from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeAlias

from agent.wire.messages import JobRefused, JobResult, Reason, ReasonCode, Status
from orchestrator.db import events, tables
from orchestrator.db.cells import attempts, running_attempts
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results import past as results
from orchestrator.policy import lifecycle
from orchestrator.policy.blocks import Refining, ended_early, unfinished

Ingested: TypeAlias = Literal["counted", "superseded", "late", "duplicate", "conflict", "unknown"]

_MEASURED = frozenset({lifecycle.AttemptState.DONE, lifecycle.AttemptState.UNSUPPORTED})


def apply(turn: Turn, message: JobResult, now: datetime) -> Ingested:
    """Store a result. Whatever it returns, the agent gets its receipt once this is committed.

    counted: its cell shows it · superseded: its attempt ended, the cell tries again · late: stored,
    never counted · duplicate: known already · conflict: another result of this attempt is stored, and
    stays · unknown: no such attempt here.
    """
    # Locked from here on: of two deliveries of one result, the second finds what the first has stored.
    attempt = turn.find_attempt(message.attempt_id)
    if attempt is None:
        return "unknown"
    stored = turn.find_result(message.attempt_id)
    if stored is not None:
        return "duplicate" if stored.content == results.content_digest(message) else "conflict"
    ended = lifecycle.attempt_end(message.status, message.reason, stop_asked=attempt.stop_asked)
    if not _decides(turn, attempt, message, ended):
        results.store(turn, message, ended.reason, attempt, now, counted=False, late=True)
        if ended.state in _MEASURED:
            cell = turn.cell(attempt.cell_id)
            events.add(turn, cell, "late", f"attempt {attempt.attempt_no}: {ended.state.value}", now)
        return "late"
    settled = attempts.end(turn, attempt, ended, now, early=ended_early(message.measurement))
    goes_on = settled.state is lifecycle.CellState.QUEUED and ended.state is lifecycle.AttemptState.DONE
    counted = goes_on or (settled.state in lifecycle.ENDED and settled.state.value == ended.state.value)
    result = results.store(turn, message, ended.reason, attempt, now, counted=counted, late=False)
    if counted:
        turn.cell(attempt.cell_id).shown_attempt_id = attempt.attempt_id
    if goes_on:
        _go_on_from(turn.cell(attempt.cell_id), message, result)
    return "counted" if counted else "superseded"


def _go_on_from(cell: tables.Cell, message: JobResult, result: tables.Result) -> None:
    """Let a waiting cell continue a result that ended early, on the device that it is of."""
    cell.device_id = result.device_id
    if cell.siblings is not None:
        cell.line = result.device_id
    earlier = unfinished(message.measurement, result.environment_id, result.grade)
    if earlier is None:
        return
    if cell.refines is None:
        refining = Refining(earlier, None, cell.rank, continues=True)
    else:
        before = Refining.read(cell.refines)
        until_decided = before.earlier.until_decided
        refining = replace(before, earlier=earlier.model_copy(update={"until_decided": until_decided}))
    cell.refines = refining.stored


def _decides(turn: Turn, attempt: tables.Attempt, message: JobResult, ended: lifecycle.AttemptEnd) -> bool:
    """Whether the result may still end its attempt.

    An attempt that was given up as lost may get its real result, as long as no other attempt has begun
    since, neither at the cell nor on the device (whose epoch is still the attempt's).
    """
    matches = (message.epoch, message.cell_id, message.device_id) == (
        attempt.epoch,
        attempt.cell_id,
        attempt.device_id,
    )
    state = lifecycle.AttemptState(attempt.state)
    if not matches or ended.state not in lifecycle.ATTEMPT_MOVES[state]:
        return False
    if state in lifecycle.LIVE_ATTEMPT:
        return True
    cell = turn.cell(attempt.cell_id)
    device = turn.device(attempt.device_id)
    return (
        attempt.reason_code in {code.value for code in lifecycle.LOST}
        and ended.state in _MEASURED
        and cell.state == lifecycle.CellState.QUEUED
        and device.epoch == attempt.epoch
    )


def refuse(turn: Turn, message: JobRefused, now: datetime) -> None:
    """End an attempt whose job the agent refused, like any failed one."""
    attempt = turn.find_attempt(message.attempt_id)
    if attempt is not None and attempt.epoch == message.epoch and attempt.state in lifecycle.LIVE_ATTEMPT:
        ended = lifecycle.attempt_end(Status.FAILED, message.reason, stop_asked=attempt.stop_asked)
        attempts.end(turn, attempt, ended, now)


def give_up(turn: Turn, attempt_id: str, reason: Reason, now: datetime) -> None:
    """End an attempt without a result. Does nothing where it has ended already."""
    attempt = turn.find_attempt(attempt_id)
    if attempt is not None and attempt.state in lifecycle.LIVE_ATTEMPT:
        ended = lifecycle.attempt_end(Status.FAILED, reason, stop_asked=attempt.stop_asked)
        attempts.end(turn, attempt, ended, now)


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
