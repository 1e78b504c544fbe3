"""Turns rows into the frozen values that the CLI and the site read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from sqlalchemy import func
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from agent.wire.messages import Measurement, Reason, ReasonCode
from orchestrator.db import tables
from orchestrator.errors import UsageError
from orchestrator.results.records import AttemptRecord, CampaignRecord, CellRecord

_CHUNK: Final = 500
"""The most keys in one query. Chosen: few round trips for the largest campaign, and far below the
32,766 parameters that SQLite takes.
"""


def campaigns(session: Session) -> list[CampaignRecord]:
    """Every campaign, the one submitted last first."""
    rows = session.exec(_shown().order_by(*_newest_first())).all()
    return _campaign_records(session, rows)


def campaign_rows(session: Session, ref: str) -> Sequence[tables.Campaign]:
    """Campaigns whose id begins with `ref`, else those called `ref`; the one submitted last first."""
    by_id = select(tables.Campaign).where(col(tables.Campaign.campaign_id).startswith(ref, autoescape=True))
    found = session.exec(by_id.order_by(*_newest_first())).all()
    if found:
        return found
    named = _shown().where(tables.Campaign.name == ref)
    return session.exec(named.order_by(*_newest_first())).all()


def last_campaign(session: Session) -> tables.Campaign | None:
    """The campaign that was submitted last."""
    return session.exec(_shown().order_by(*_newest_first())).first()


def _shown() -> SelectOfScalar[tables.Campaign]:
    """The users' campaigns, without the farm's own."""
    return select(tables.Campaign).where(tables.Campaign.purpose == tables.MEASURE)


def find_campaign(session: Session, ref: str | None) -> tables.Campaign:
    """A campaign by id, beginning of its id, or name (the newest of that name); None: the last.

    Raises `UsageError` where none fits, or where several ids begin with `ref`.
    """
    if ref is None:
        last = last_campaign(session)
        if last is None:
            raise UsageError("no campaign yet; submit one: farm submit models.yaml")
        return last
    rows = campaign_rows(session, ref) if ref else []
    if not rows:
        names = [row.name for row in session.exec(_shown())]
        close = get_close_matches(ref, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "see `farm status`"
        raise UsageError(f"no campaign {ref!r}; {hint}")
    exact = [row for row in rows if ref in (row.campaign_id, row.name)]
    if len(rows) > 1 and not exact:
        raise UsageError(
            f"{ref!r} begins {len(rows)} campaign ids: {', '.join(row.campaign_id for row in rows)}"
        )
    return (exact or rows)[0]


def find_cell(session: Session, prefix: str, what: str = "cell") -> str:
    """The id of the one cell whose id begins with `prefix`. Raises `UsageError` where none or several do."""
    ids = cell_ids_like(session, prefix) if prefix else []
    if not ids:
        if prefix and campaign_rows(session, prefix):
            raise UsageError(f"{prefix!r} is a campaign; its cells: farm status {prefix}")
        raise UsageError(f"no {what} {prefix!r}; see `farm status CAMPAIGN`")
    if len(ids) > 1:
        raise UsageError(f"{prefix!r} begins several cell ids: {', '.join(sorted(ids))}")
    return ids[0]


def campaign_record(session: Session, row: tables.Campaign) -> CampaignRecord:
    """One campaign with its counts."""
    return _campaign_records(session, [row])[0]


def _newest_first() -> tuple[Any, Any]:
    return col(tables.Campaign.submitted_at).desc(), col(tables.Campaign.no).desc()


def _campaign_records(session: Session, rows: Sequence[tables.Campaign]) -> list[CampaignRecord]:
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    counted = (
        select(tables.Cell.campaign_no, tables.Cell.state, func.count())
        .where(col(tables.Cell.campaign_no).in_([row.no for row in rows]))
        .group_by(col(tables.Cell.campaign_no), col(tables.Cell.state))
    )
    for number, state, count in session.exec(counted):
        counts[number][state] = count
    return [
        CampaignRecord(
            campaign_id=row.campaign_id,
            name=row.name,
            submitted_at=row.submitted_at,
            level=row.level,
            baseline=row.baseline_delegate,
            manifest_sha256=row.manifest_sha256,
            models=tuple(row.model_names),
            delegates=tuple(row.delegate_names),
            labels=dict(row.labels),
            counts=counts[row.no or 0],
            priority=row.priority,
            paused=row.paused_at is not None,
        )
        for row in rows
    ]


def cells_of(session: Session, campaign_no: int | None) -> list[CellRecord]:
    """The cells of a campaign in matrix order; None: of every campaign, the newest campaign first."""
    query = select(tables.Cell.cell_id).order_by(
        col(tables.Cell.campaign_no).desc(), col(tables.Cell.position)
    )
    if campaign_no is not None:
        query = query.where(tables.Cell.campaign_no == campaign_no)
    else:
        shown = select(tables.Campaign.no).where(tables.Campaign.purpose == tables.MEASURE)
        query = query.where(col(tables.Cell.campaign_no).in_(shown))
    return cells_by_id(session, session.exec(query).all())


def has_samples(session: Session, sha256: str) -> bool:
    """Whether a result names this file of samples."""
    query = select(tables.Result.attempt_id).where(tables.Result.samples_sha256 == sha256)
    return session.exec(query.limit(1)).first() is not None


def cell_ids_like(session: Session, prefix: str, limit: int = 20) -> Sequence[str]:
    """Ids of cells that begin with `prefix`."""
    like = col(tables.Cell.cell_id).startswith(prefix, autoescape=True)
    return session.exec(select(tables.Cell.cell_id).where(like).limit(limit)).all()


def cells_by_id(session: Session, cell_ids: Sequence[str]) -> list[CellRecord]:
    """These cells, in this order."""
    facts = _Facts(
        devices=dict(session.exec(select(tables.Device.device_id, tables.Device.name)).all()),
        environments=dict(
            session.exec(select(tables.Environment.environment_id, tables.Environment.fields)).all()
        ),
    )
    found: dict[str, CellRecord] = {}
    for start in range(0, len(cell_ids), _CHUNK):
        chunk = list(cell_ids[start : start + _CHUNK])
        tries = _attempts(session, chunk)
        for cell, campaign, model, result in _joined(session, chunk):
            found[cell.cell_id] = _cell_record(
                cell, campaign, model, result, facts, tries.get(cell.cell_id, ())
            )
    return [found[cell_id] for cell_id in cell_ids if cell_id in found]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Names of devices and fields of environments, by id."""

    devices: Mapping[str, str]
    environments: Mapping[str, Mapping[str, str]]


def _joined(
    session: Session, cell_ids: Sequence[str]
) -> Iterable[tuple[tables.Cell, tables.Campaign, tables.Model, tables.Result | None]]:
    return session.exec(
        select(tables.Cell, tables.Campaign, tables.Model, tables.Result)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .join(tables.Model, col(tables.Model.sha256) == tables.Cell.model_sha256)
        .outerjoin(tables.Result, col(tables.Result.attempt_id) == tables.Cell.shown_attempt_id)
        .where(col(tables.Cell.cell_id).in_(cell_ids))
    )


def _cell_record(
    cell: tables.Cell,
    campaign: tables.Campaign,
    model: tables.Model,
    result: tables.Result | None,
    facts: _Facts,
    tries: Sequence[AttemptRecord],
) -> CellRecord:
    measured = None if result is None else result.measurement
    device = (cell.device_id if result is None else result.device_id) or cell.target
    return CellRecord(
        cell_id=cell.cell_id,
        campaign=campaign.name,
        campaign_id=campaign.campaign_id,
        model=cell.model,
        model_sha256=cell.model_sha256,
        model_bytes=model.size_bytes,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=dict(cell.delegate_options),
        device=device,
        device_name=facts.devices.get(device, device),
        level=cell.level,
        status=cell.state,
        reason=_reason(cell.reason_code, cell.reason_text),
        measurement=None if measured is None else Measurement.model_validate_json(measured),
        environment_id=None if result is None else result.environment_id,
        environment={} if result is None else dict(facts.environments[result.environment_id]),
        facts={} if result is None else dict(result.facts),
        attempts=tuple(tries),
        reused_from=cell.reused_from,
        finished_at=cell.ended_at if result is None else result.received_at,
    )


def _attempts(session: Session, cell_ids: Sequence[str]) -> Mapping[str, Sequence[AttemptRecord]]:
    found: dict[str, list[AttemptRecord]] = defaultdict(list)
    rows = session.exec(
        select(tables.Attempt, tables.Result)
        .outerjoin(tables.Result, col(tables.Result.attempt_id) == tables.Attempt.attempt_id)
        .where(col(tables.Attempt.cell_id).in_(cell_ids))
        .order_by(col(tables.Attempt.attempt_no))
    )
    pairs: Iterable[tuple[tables.Attempt, tables.Result | None]] = rows
    for attempt, result in pairs:
        found[attempt.cell_id].append(
            AttemptRecord(
                attempt_id=attempt.attempt_id,
                number=attempt.attempt_no,
                device_id=attempt.device_id,
                state=attempt.state,
                reason=_reason(attempt.reason_code, attempt.reason_text),
                started_at=attempt.started_at,
                ended_at=attempt.ended_at,
                duration_ns=None if result is None else result.duration_ns,
                log_tail="" if result is None else result.log_tail,
            )
        )
    return found


def _reason(code: str | None, text: str | None) -> Reason | None:
    if code is None or code == ReasonCode.COMPLETED:
        return None
    return Reason(code=ReasonCode(code), text=text or "")


def phases(session: Session, campaign_no: int) -> Mapping[str, str]:
    """Cell id -> what its runner does now, for the live attempts of a campaign."""
    rows = session.exec(
        select(tables.Attempt.cell_id, tables.Attempt.phase)
        .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
        .where(tables.Cell.campaign_no == campaign_no, tables.IS_LIVE)
    )
    return dict(rows.all())
