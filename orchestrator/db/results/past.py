"""Queries earlier measurements that a cell could reuse, and stores delivered results."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import and_, bindparam, func
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import Select

from agent.wire.measurement import Measurement, Refinement
from agent.wire.messages import JobResult, Reason, ReasonCode, expected_environment
from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.db import tables
from orchestrator.db.devices.devices import record_environment
from orchestrator.db.engine.turn import AttemptRows, Turn, chunks
from orchestrator.policy.blocks import unfinished
from orchestrator.policy.fingerprint import Environments, Ingredients, fingerprint
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.matrix import CellSpec
from orchestrator.policy.preview import Duration, KnownResult, PastResults
from orchestrator.results.events import ResultStored
from orchestrator.results.grading import grade_of_result

_ENDED_EARLY: Final = '"stopped":"cancelled"'
"""What the JSON of a result has that ended early."""

_RECENT_CAMPAIGNS: Final = 10
"""Campaigns whose cells' durations estimate those of new cells: the newest, as machines change."""

_RECENT_CELLS: Final = 1_000
"""Cells read for that at most, so that planning after a campaign of 10,000 cells is as fast as before."""


def past_results(session: Session, specs: Iterable[CellSpec], environments: Environments) -> PastResults:
    """Return the earlier results that these cells could reuse or compare with."""
    runnable = [spec for spec in specs if spec.obstacle is None]
    # One of each class: its siblings may run on the same devices.
    groups = {spec.siblings or spec.key: spec for spec in runnable}.values()
    measured = {
        (spec.on(name).series, environments.id_of(name, spec.delegate_kind, spec.delegate_options))
        for spec in groups
        for name in spec.devices
    }
    return PastResults(
        by_fingerprint=_newest_by(
            session, col(tables.Result.fingerprint), {fingerprint(*pair) for pair in measured}
        ),
        by_series=_newest_by(session, col(tables.Result.series), {series for series, _ in measured}),
        by_names=_newest_by_names(session, {spec.model for spec in runnable}),
        durations=_durations(session, {spec.delegate_kind for spec in runnable}),
    )


def _durations(session: Session, kinds: Iterable[str]) -> dict[str, list[Duration]]:
    """Return the durations of the cells of the newest campaigns, by delegate kind."""
    newest = session.exec(
        select(tables.Campaign.no).order_by(col(tables.Campaign.no).desc()).limit(_RECENT_CAMPAIGNS)
    ).all()
    query = (
        select(
            tables.Cell.delegate_kind, tables.Cell.plan, tables.Model.size_bytes, tables.Result.duration_ns
        )
        .join(tables.Result, col(tables.Result.cell_id) == tables.Cell.cell_id)
        .join(tables.Model, col(tables.Model.sha256) == tables.Cell.model_sha256)
        .where(
            col(tables.Cell.campaign_no).in_(newest),
            tables.Cell.state == CellState.DONE.value,
            col(tables.Cell.delegate_kind).in_(sorted(kinds)),
            col(tables.Result.counted),
        )
        .order_by(col(tables.Cell.campaign_no).desc())
        .limit(_RECENT_CELLS)
    )
    found: dict[str, list[Duration]] = {}
    for kind, plan, size_bytes, duration_ns in session.exec(query):
        one = Duration(MeasurePlan.model_validate(plan), size_bytes, duration_ns / 1e9)
        found.setdefault(kind, []).append(one)
    return found


def last_devices(session: Session, models: Iterable[str]) -> dict[str, str]:
    """Return the device that measured a model last, by the sha256 of its file."""
    # The oldest result comes first, and newer ones take its place.
    found: dict[str, str] = {}
    for chunk in chunks(models):
        query = (
            select(tables.Cell.model_sha256, tables.Result.device_id)
            .join(tables.Result, col(tables.Result.attempt_id) == tables.Cell.shown_attempt_id)
            .where(col(tables.Cell.model_sha256).in_(chunk))
            .order_by(col(tables.Result.received_at))
        )
        found.update(session.exec(query).all())
    return found


def stored(session: Session, attempt_ids: Iterable[str]) -> set[str]:
    """Return the attempts among these whose results are stored."""
    name = col(tables.Result.attempt_id)
    return {one for chunk in chunks(attempt_ids) for one in session.exec(select(name).where(name.in_(chunk)))}


def known_by_fingerprint(session: Session, wanted: Iterable[str]) -> Mapping[str, KnownResult]:
    """Return the newest counted result with each of these fingerprints."""
    return _newest_by(session, col(tables.Result.fingerprint), wanted)


def _newest_by(session: Session, column: Any, values: Iterable[str]) -> dict[str, KnownResult]:
    """Return the newest counted result for each value of a column.

    Usually no result exists, and that is checked first: one seek in place of a grouped join.
    """
    found: dict[str, KnownResult] = {}
    for chunk in chunks(values):
        if session.connection().execute(_any_counted(column), {"values": chunk}).first() is None:
            continue
        counted = (col(tables.Result.counted), column.in_(chunk))
        newest = select(column.label("value"), func.max(tables.Result.received_at).label("at"))
        last = newest.where(*counted).group_by(column).subquery()
        query = _known().join(last, and_(column == last.c.value, col(tables.Result.received_at) == last.c.at))
        # Counted, once more: a result that does not count may have arrived at the same moment.
        for result, cell, environment in session.exec(query.where(col(tables.Result.counted))):
            found[getattr(result, column.key)] = _known_result(result, cell, environment)
    return found


@cache
def _any_counted(column: Any) -> Any:
    wanted = column.in_(bindparam("values", expanding=True))
    return select(column).where(col(tables.Result.counted), wanted).limit(1)


def _newest_by_names(session: Session, models: Iterable[str]) -> dict[tuple[str, str, str], KnownResult]:
    """Return the newest counted result by model, delegate and device, whatever was measured."""
    found = {}
    for chunk in chunks(models):
        newest = (
            select(
                tables.Cell.model,
                tables.Cell.delegate,
                tables.Result.device_id,
                func.max(tables.Result.received_at).label("at"),
            )
            .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
            .where(col(tables.Result.counted), col(tables.Cell.model).in_(chunk))
            .group_by(col(tables.Cell.model), col(tables.Cell.delegate), col(tables.Result.device_id))
            .subquery()
        )
        same = (
            col(tables.Cell.model) == newest.c.model,
            col(tables.Cell.delegate) == newest.c.delegate,
            col(tables.Result.device_id) == newest.c.device_id,
            col(tables.Result.received_at) == newest.c.at,
            col(tables.Result.counted),
        )
        for result, cell, environment in session.exec(_known().join(newest, and_(*same))):
            found[cell.model, cell.delegate, result.device_id] = _known_result(result, cell, environment)
    return found


def _known() -> Select[tables.Result, tables.Cell, tables.Environment]:
    return (
        select(tables.Result, tables.Cell, tables.Environment)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Result.cell_id)
        .join(tables.Environment, col(tables.Environment.environment_id) == tables.Result.environment_id)
    )


def _known_result(row: tables.Result, cell: tables.Cell, environment: tables.Environment) -> KnownResult:
    return KnownResult(
        attempt_id=row.attempt_id,
        cell_id=row.cell_id,
        status=row.status,
        reason_code=ReasonCode(row.reason_code),
        received_at=row.received_at,
        duration_s=row.duration_ns / 1e9,
        ingredients=ingredients(cell, row.device_id),
        environment=environment.fields,
        grade=row.grade,
        unfinished=_unfinished(row),
    )


def _unfinished(row: tables.Result) -> Refinement | None:
    # Plans of 10,000 cells read as many results: the few that ended early are told without parsing all.
    if row.measurement is None or _ENDED_EARLY not in row.measurement:
        return None
    measured = Measurement.model_validate_json(row.measurement)
    return unfinished(measured, str(row.environment_id), row.grade)


def ingredients(cell: tables.Cell, device_id: str) -> Ingredients:
    """Return everything that a measurement of this cell on this device depends on."""
    return Ingredients(
        model_sha256=cell.model_sha256,
        delegate_kind=cell.delegate_kind,
        delegate_options=cell.delegate_options,
        device_id=device_id,
        plan=MeasurePlan.model_validate(cell.plan),
        inputs=input_specs(cell.inputs),
    )


def input_specs(stored: Mapping[str, Any]) -> dict[str, InputSpec]:
    """Input specs from their JSON."""
    return {name: InputSpec.model_validate_json(value) for name, value in stored.items()}


def store(
    turn: Turn,
    rows: AttemptRows,
    message: JobResult,
    reason: Reason,
    content: str,
    now: datetime,
    *,
    counted: bool,
    late: bool,
) -> tables.Result:
    """Keep a delivered result, with the digest of its `content` and the environment it was measured in."""
    attempt, cell, device = rows.attempt, rows.cell, rows.device
    series = ingredients(cell, device.device_id).series
    expected = expected_environment(
        rows.environment.fields, device.delegate_environments, cell.delegate_kind, cell.delegate_options
    )
    # Of its own result alone: what the device is, its agent's probe says, which looks again.
    environment = record_environment(turn, message.environment or expected)
    measured = message.measurement
    graded = None if measured is None else grade_of_result(measured)
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
        content=content,
        counted=counted,
        late=late,
        received_at=now,
        grade=None if graded is None else graded.grade,
    )
    turn.put(tables.Result, row.attempt_id, row)
    if measured is not None:
        turn.tell(ResultStored(row.grade, measured.accuracy.verdict))
    return row
