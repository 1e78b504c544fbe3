"""Queries what could be deleted, and deletes ended campaigns, a part of it per transaction."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Text, cast, delete, func, literal, or_
from sqlmodel import Session, col, select

from agent.wire.measurement import Measurement
from agent.wire.plan import MeasurePlan
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results.past import input_specs


@dataclass(frozen=True, slots=True)
class Ended:
    """A campaign whose last cell ended."""

    no: int
    campaign_id: str
    name: str
    ended_at: datetime
    cells: int


@dataclass(frozen=True, slots=True)
class Reference:
    """An artifact that the database names. `size_bytes`: of a model, None: not known."""

    sha256: str
    size_bytes: int | None
    what: str


def ended(session: Session) -> list[Ended]:
    """Campaigns of users that ended and have nothing under way, the one that ended last first."""
    live = (
        select(tables.Cell.campaign_no)
        .join(tables.Attempt, col(tables.Attempt.cell_id) == tables.Cell.cell_id)
        .where(tables.IS_LIVE)
    )
    cells = (
        select(func.count())
        .select_from(tables.Cell)
        .where(tables.Cell.campaign_no == tables.Campaign.no)
        .scalar_subquery()
    )
    rows = session.exec(
        select(tables.Campaign, cells)
        .where(
            col(tables.Campaign.ended_at).is_not(None),
            tables.Campaign.purpose == tables.MEASURE,
            col(tables.Campaign.no).not_in(live),
        )
        .order_by(col(tables.Campaign.ended_at).desc(), col(tables.Campaign.no).desc())
    ).all()
    return [
        Ended(row.no, row.campaign_id, row.name, row.ended_at, count)
        for row, count in rows
        if row.no is not None and row.ended_at is not None
    ]


def shown_elsewhere(session: Session, numbers: Collection[int]) -> set[int]:
    """Return the campaigns among these whose results a cell of another campaign shows."""
    if not numbers:
        return set()
    owner, viewer = tables.Cell.__table__.alias("owner"), tables.Cell.__table__.alias("viewer")  # type: ignore[attr-defined]  # SQLModel's table
    attempt = tables.Attempt.__table__  # type: ignore[attr-defined]  # as above
    found = session.connection().execute(
        select(owner.c.campaign_no)
        .distinct()
        .select_from(viewer)
        .join(attempt, attempt.c.attempt_id == viewer.c.shown_attempt_id)
        .join(owner, owner.c.cell_id == attempt.c.cell_id)
        .where(owner.c.campaign_no.in_(numbers), viewer.c.campaign_no.not_in(numbers))
    )
    return set(found.scalars())


def references(session: Session, without: Collection[int] = ()) -> list[Reference]:
    """Every artifact that a campaign names, those of the campaigns `without` left out."""
    # All cells, where no campaign is left out.
    kept = or_(literal(not without), col(tables.Cell.campaign_no).not_in(without))
    models = session.exec(
        select(tables.Model.sha256, tables.Model.size_bytes)
        .where(col(tables.Model.sha256).in_(select(tables.Cell.model_sha256).where(kept)))
        .where(tables.Model.sha256 != tables.NO_FILE)
        .order_by(col(tables.Model.sha256))
    )
    found = [Reference(sha256, size, "model") for sha256, size in models]
    samples = session.exec(
        select(tables.Result.samples_sha256)
        .distinct()
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
        .where(kept, col(tables.Result.samples_sha256).is_not(None))
        .order_by(col(tables.Result.samples_sha256))
    )
    found += [Reference(sha256, None, "samples") for sha256 in samples if sha256 is not None]
    found += _answers(session, kept)
    return found + _labelled(session, kept) + _of_inputs(session, kept) + _references(session, kept)


def _answers(session: Session, kept: ColumnElement[bool]) -> list[Reference]:
    """Return the answers to labelled data that results of these cells name."""
    measurements = session.exec(
        select(tables.Result.measurement)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
        # With the quote of a text behind the colon: only measurements that name a file are parsed.
        .where(kept, col(tables.Result.measurement).contains('"answers_sha256":"'))
    )
    scores = (Measurement.model_validate_json(text).labelled for text in measurements if text)
    named = {score.answers_sha256 for score in scores if score is not None and score.answers_sha256}
    return [Reference(name, None, "answers to labelled data") for name in sorted(named)]


def _labelled(session: Session, kept: ColumnElement[bool]) -> list[Reference]:
    """Labelled data that plans of these cells name."""
    plans = session.exec(
        select(tables.Cell.plan).where(kept, cast(tables.Cell.plan, Text).contains('"labelled"'))
    )
    named = {data.sha256: data for plan in plans if (data := MeasurePlan.model_validate(plan).labelled)}
    return [Reference(name, named[name].size_bytes, "labelled data") for name in sorted(named)]


def _of_inputs(session: Session, kept: ColumnElement[bool]) -> list[Reference]:
    """Return the data of inputs that these cells name."""
    query = select(tables.Cell.inputs).where(kept, cast(tables.Cell.inputs, Text).contains("size_bytes"))
    specs = (spec for inputs in session.exec(query) for spec in input_specs(inputs).values())
    named = {spec.data.sha256: spec.data for spec in specs if spec.data is not None}
    return [Reference(name, named[name].size_bytes, "data of an input") for name in sorted(named)]


def _references(session: Session, kept: ColumnElement[bool]) -> list[Reference]:
    """Return the reference outputs for models that these cells name."""
    rows = session.exec(
        select(tables.ReferenceClaim.sha256, tables.ReferenceClaim.size_bytes)
        .distinct()
        .where(
            col(tables.ReferenceClaim.sha256).is_not(None),
            col(tables.ReferenceClaim.model_sha256).in_(select(tables.Cell.model_sha256).where(kept)),
        )
        .order_by(col(tables.ReferenceClaim.sha256))
    )
    return [Reference(sha256, size, "reference outputs") for sha256, size in rows if sha256 is not None]


def unshown(session: Session) -> int:
    """Count the cells that show a result that does not exist."""
    shown = col(tables.Cell.shown_attempt_id)
    return tables.count(
        session, tables.Cell, shown.is_not(None), shown.not_in(select(tables.Result.attempt_id))
    )


CELLS_AT_ONCE: Final = 2000
"""How many cells one transaction deletes. Chosen: the scheduler, which waits for every writer, misses no
heartbeat meanwhile; larger: it waits longer; smaller: a large campaign takes more transactions, each with a
durable commit.
"""


def forget(turn: Turn, number: int) -> bool:
    """Delete a campaign with its cells, attempts, results and events, at most `CELLS_AT_ONCE` cells of it.

    True: it is gone, runs again since a user had its cells tried again, or what is left is shown by another
    campaign; False: call again, in a new transaction.
    """
    campaign = turn.get(tables.Campaign, number, with_for_update=True)
    if campaign is None or campaign.ended_at is None:
        return True
    some = select(tables.Cell.cell_id).where(tables.Cell.campaign_no == number)
    found = turn.exec(some.order_by(tables.Cell.cell_id).limit(CELLS_AT_ONCE)).all()
    cells = set(found) - _shown_meanwhile(turn, found, number)
    # Children before parents: foreign keys hold at every statement.
    attempts = select(tables.Attempt.attempt_id).where(col(tables.Attempt.cell_id).in_(cells))
    for statement in (
        delete(tables.Event).where(col(tables.Event.cell_id).in_(cells)),
        delete(tables.Outbox).where(col(tables.Outbox.attempt_id).in_(attempts)),
        delete(tables.Output).where(col(tables.Output.attempt_id).in_(attempts)),
        delete(tables.Result).where(col(tables.Result.cell_id).in_(cells)),
        delete(tables.Attempt).where(col(tables.Attempt.cell_id).in_(cells)),
        delete(tables.Cell).where(col(tables.Cell.cell_id).in_(cells)),
    ):
        turn.connection().execute(statement)
    if turn.exec(some.limit(1)).first() is not None:
        # Where nothing could be deleted, others show all that is left.
        return not cells
    for statement in (
        delete(tables.Manifest).where(col(tables.Manifest.campaign_no) == number),
        delete(tables.Campaign).where(col(tables.Campaign.no) == number),
    ):
        turn.connection().execute(statement)
    return True


def _shown_meanwhile(turn: Turn, cells: Collection[str], number: int) -> set[str]:
    """Return the cells of a campaign whose results the scheduler has just reused for another campaign."""
    viewer = tables.Cell
    return set(
        turn.exec(
            select(tables.Attempt.cell_id)
            .join(viewer, col(viewer.shown_attempt_id) == tables.Attempt.attempt_id)
            .where(col(tables.Attempt.cell_id).in_(cells), viewer.campaign_no != number)
        )
    )


def forget_unused(turn: Turn) -> None:
    """Delete models and environments to which no row refers any more, and what is known of such models."""
    models = select(tables.Cell.model_sha256)
    environments = select(tables.Device.environment_id).union(select(tables.Result.environment_id))
    for statement in (
        # Before the models, to which claims refer.
        delete(tables.ReferenceClaim).where(col(tables.ReferenceClaim.model_sha256).not_in(models)),
        delete(tables.Model).where(col(tables.Model.sha256).not_in(models)),
        delete(tables.Environment).where(col(tables.Environment.environment_id).not_in(environments)),
    ):
        turn.connection().execute(statement)
