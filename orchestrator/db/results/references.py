"""Stores agents' claims about the references that they made, and adds the farm's references to jobs."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from sqlalchemy import delete
from sqlmodel import Session, col, select

from agent.wire.bounded import Wire
from agent.wire.messages import JobResult, JobSpec
from agent.wire.reference import MAX_KNOWN, OWN_KIND, ReferenceRecord, inputs_id
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results.past import input_specs
from orchestrator.policy.shared_references import Claim, shared

Message = TypeVar("Message", bound=Wire)


@dataclass(frozen=True, slots=True)
class ModelClaims:
    """Everything that agents said of the references of one model with one choice of inputs."""

    model_sha256: str
    inputs: str
    claims: tuple[Claim, ...]


def with_references(
    session: Session, messages: Sequence[tuple[str, Message]], agents: int
) -> list[tuple[str, Message]]:
    """Return the messages, each job of them with what the farm knows of its references.

    `agents`: how many must have made the same one (`policy.shared_references`).
    """
    models = {message.model_sha256 for _, message in messages if isinstance(message, JobSpec)}
    if not models:
        return list(messages)
    told = {
        (found.model_sha256, found.inputs): shared(found.claims, agents)[:MAX_KNOWN]
        for found in claims_of(session, models)
    }
    times = forgotten(session, models)

    def named(message: Message) -> Message:
        if not isinstance(message, JobSpec):
            return message
        known = told.get((message.model_sha256, inputs_id(message.inputs)), [])
        return message.model_copy(
            update={"references": tuple(known), "references_forgotten": times.get(message.model_sha256, 0)}
        )

    return [(agent_id, named(message)) for agent_id, message in messages]


def claims_of(session: Session, models: Collection[str] | None = None) -> list[ModelClaims]:
    """Return the claims about these models, or about all models, without those of removed agents."""
    query = (
        select(tables.ReferenceClaim)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.ReferenceClaim.agent_id)
        .where(tables.Agent.state != tables.AGENT_REMOVED)
        .order_by(tables.ReferenceClaim.model_sha256, tables.ReferenceClaim.inputs)
    )
    if models is not None:
        query = query.where(col(tables.ReferenceClaim.model_sha256).in_(models))
    grouped: dict[tuple[str, str], list[Claim]] = defaultdict(list)
    for row in session.exec(query):
        claim = Claim(row.agent_id, row.made_at, row.trusted, _record(row))
        grouped[row.model_sha256, row.inputs].append(claim)
    return [ModelClaims(model, inputs, tuple(found)) for (model, inputs), found in grouped.items()]


def forgotten(session: Session, models: Collection[str]) -> dict[str, int]:
    """Return how many times the references of each of these models were forgotten, if ever."""
    query = select(tables.ForgottenReferences.model_sha256, tables.ForgottenReferences.times)
    return dict(session.exec(query.where(col(tables.ForgottenReferences.model_sha256).in_(models))).all())


def models_named(session: Session, name: str) -> dict[str, list[str]]:
    """Return the names that campaigns give to models, by sha256: of models with this name or this beginning
    of the sha256; of all models for an empty name.
    """
    query = select(tables.Cell.model_sha256, tables.Cell.model).distinct().order_by(tables.Cell.model)
    query = query.where(col(tables.Cell.model_sha256) != tables.NO_FILE)
    found: dict[str, list[str]] = defaultdict(list)
    for sha256, model in session.exec(query):
        found[sha256].append(model)
    return {
        sha256: names for sha256, names in found.items() if name in names or sha256.startswith(name.lower())
    }


def is_of_live_attempt(session: Session, agent_id: str, sha256: str) -> bool:
    """Whether a file is a reference for the model of a live attempt of an agent, as another agent says.

    What it says itself gives it no right: it may name any file, and has what it made.
    """
    query = (
        select(tables.Attempt.attempt_id)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
        .join(tables.ReferenceClaim, col(tables.ReferenceClaim.model_sha256) == tables.Cell.model_sha256)
        .where(tables.Device.agent_id == agent_id, tables.IS_LIVE, tables.ReferenceClaim.sha256 == sha256)
        .where(tables.ReferenceClaim.agent_id != agent_id)
    )
    return session.exec(query.limit(1)).first() is not None


def _record(row: tables.ReferenceClaim) -> ReferenceRecord:
    return ReferenceRecord.model_validate({name: getattr(row, name) for name in ReferenceRecord.model_fields})


def claim(turn: Turn, agent_id: str, message: JobResult, now: datetime, *, trusted: bool) -> None:
    """Store what an attempt made. It counts for the model and the inputs of the attempt's own cell alone."""
    attempt = turn.find_attempt(message.attempt_id)
    if attempt is None:
        return
    cell = turn.cell(attempt.cell_id)
    for record in message.references:
        if record.kind == OWN_KIND:
            continue
        # An agent has one claim to a key: a later one takes its place.
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
