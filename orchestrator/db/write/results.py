"""Stores delivered results, each with the environment that it was measured in."""

from __future__ import annotations

from datetime import datetime

from agent.wire.messages import JobResult, Reason
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read.past_results import ingredients
from orchestrator.db.write.devices import environment_of, note_reported, record_environment
from orchestrator.policy.fingerprint import digest, fingerprint
from orchestrator.results.facts import ResultStored
from orchestrator.results.grading import grade_of_result


def content_digest(message: JobResult) -> str:
    """Digest of a result message: equal for every delivery of the same result."""
    return digest(message.model_dump(mode="json"))


def store(
    turn: Turn,
    message: JobResult,
    reason: Reason,
    attempt: tables.Attempt,
    now: datetime,
    *,
    counted: bool,
    late: bool,
) -> tables.Result:
    """Keep a delivered result with the environment it was measured in."""
    cell = turn.cell(attempt.cell_id)
    device = turn.device(attempt.device_id)
    expected = environment_of(turn, device, cell.delegate_kind)
    # What the runner found takes precedence over the hello: a driver may have been replaced since.
    found = message.environment or expected
    environment = record_environment(turn, found)
    if found != expected and not late:
        note_reported(turn, device, cell.delegate_kind, found)
    measured = message.measurement
    graded = None if measured is None else grade_of_result(measured)
    series = ingredients(cell, attempt.device_id).series
    row = tables.Result(
        attempt_id=attempt.attempt_id,
        cell_id=attempt.cell_id,
        device_id=attempt.device_id,
        epoch=message.epoch,
        status=message.status.value,
        reason_code=reason.code.value,
        reason_text=reason.text,
        measurement=None if measured is None else measured.model_dump_json(),
        samples_sha256=None if measured is None else measured.samples_sha256,
        environment_id=environment,
        facts=message.facts,
        log_tail=message.log_tail,
        duration_ns=message.duration_ns,
        series=series,
        fingerprint=fingerprint(series, environment),
        content=content_digest(message),
        counted=counted,
        late=late,
        received_at=now,
        grade=None if graded is None else graded.grade,
    )
    turn.put(tables.Result, row.attempt_id, row)
    if measured is not None:
        turn.tell(ResultStored(row.grade, measured.accuracy.verdict))
    return row
