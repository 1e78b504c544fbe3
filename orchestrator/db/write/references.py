"""Stores what agents say of references that they made, and forgets it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import delete
from sqlmodel import col

from agent.wire.messages import JobResult
from agent.wire.reference import OWN_KIND, inputs_id
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.read.past_results import input_specs
from orchestrator.db.read.references import forgotten


def claim(turn: Turn, agent_id: str, message: JobResult, now: datetime, *, trusted: bool) -> None:
    """Store what an attempt made. It counts for the model and the inputs of the attempt's own cell alone."""
    attempt = turn.find_attempt(message.attempt_id)
    if attempt is None:
        return
    cell = turn.cell(attempt.cell_id)
    for record in message.references:
        if record.kind == OWN_KIND:
            continue
        turn.merge(
            tables.ReferenceClaim(
                agent_id=agent_id,
                model_sha256=cell.model_sha256,
                inputs=inputs_id(input_specs(cell.inputs)),
                trusted=trusted,
                made_at=now,
                **record.model_dump(),
            )
        )


def forget(turn: Turn, models: Collection[str]) -> int:
    """Forget the references of these models; agents use none that they made before. Returns how many."""
    of_models = col(tables.ReferenceClaim.model_sha256).in_(models)
    gone = turn.connection().execute(delete(tables.ReferenceClaim).where(of_models)).rowcount
    times = forgotten(turn, models)
    for sha256 in models:
        turn.merge(tables.ForgottenReferences(model_sha256=sha256, times=times.get(sha256, 0) + 1))
    return int(gone)
