"""Turns rows into the frozen values that the CLI and the site read."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import sqlalchemy
from sqlalchemy import func
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from agent.wire.measurement import Measurement
from agent.wire.messages import Reason, ReasonCode
from agent.wire.plan import InputSpec, MeasurePlan
from orchestrator.config.collector import collector_paused
from orchestrator.db import tables
from orchestrator.db.engine.turn import chunks
from orchestrator.errors import UsageError
from orchestrator.manifest.labels import has_label
from orchestrator.policy.lifecycle import OPEN, CellState
from orchestrator.results.device_noise import DeviceNoise, noise_from
from orchestrator.results.records import AttemptRecord, CampaignRecord, CellRecord

_MOST_NAMED: Final = 8
"""Names that an error lists: about two lines. The rest is counted."""

LABEL: Final = "label:"
"""Begins a reference to a campaign by its label. No name of a campaign has a colon."""


def campaigns(session: Session) -> list[CampaignRecord]:
    """Every campaign, the one submitted last first."""
    rows = session.exec(_shown().order_by(*_newest_first())).all()
    return _campaign_records(session, rows)


def campaign_rows(session: Session, ref: str) -> Sequence[tables.Campaign]:
    """Campaigns whose id begins with `ref`, else those called `ref`; the one submitted last first.

    `label:WORD` and `label:NAME=VALUE` are those with that label.
    """
    if ref.startswith(LABEL):
        rows = session.exec(_shown().order_by(*_newest_first()))
        return [row for row in rows if has_label(row.labels, ref.removeprefix(LABEL))]
    by_id = select(tables.Campaign).where(col(tables.Campaign.campaign_id).startswith(ref, autoescape=True))
    found = session.exec(by_id.order_by(*_newest_first())).all()
    if found:
        return found
    named = _shown().where(tables.Campaign.name == ref)
    return session.exec(named.order_by(*_newest_first())).all()


def _shown() -> SelectOfScalar[tables.Campaign]:
    return select(tables.Campaign).where(tables.Campaign.purpose == tables.MEASURE)


def find_campaign(session: Session, ref: str | None) -> tables.Campaign:
    """Find a campaign by id, beginning of its id, name or part of one name (the newest of it); None: the
    last.

    `NAME~1` is the one of that name before the newest, as git counts; `label:WORD` the newest with a label,
    and `label:WORD~1` the one before. Raises `UsageError` where none fits, where several ids begin with
    `ref`, or where it is a part of several names.
    """
    if ref is None:
        last = session.exec(_shown().order_by(*_newest_first())).first()
        if last is None:
            raise UsageError("no campaign yet; submit one: farm submit models.yaml")
        return last
    rows = campaign_rows(session, ref) if ref else []
    name, _, back = ref.rpartition("~")
    if not rows and name and back.isdecimal():
        return _earlier(session, name, int(back))
    if not rows and ref.startswith(LABEL):
        raise UsageError(f"no campaign has the label {ref.removeprefix(LABEL)!r}; see `farm status`")
    if not rows and ref:
        rows = _named_in_part(session, ref)
    if not rows:
        names = [row.name for row in session.exec(_shown())]
        close = get_close_matches(ref, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else "see `farm status`"
        raise UsageError(f"no campaign {ref!r}; {hint}")
    # A whole id or name is not ambiguous, though other ids may begin with it.
    exact = [row for row in rows if ref in (row.campaign_id, row.name) or ref.startswith(LABEL)]
    if len(rows) > 1 and not exact:
        raise UsageError(
            f"{ref!r} begins {len(rows)} campaign ids: {', '.join(row.campaign_id for row in rows)}"
        )
    return (exact or rows)[0]


def _named_in_part(session: Session, part: str) -> Sequence[tables.Campaign]:
    """Return the newest campaign of the one name that contains a text. Raises `UsageError` for several."""
    name = func.lower(tables.Campaign.name)
    query = _shown().where(name.contains(part.lower(), autoescape=True)).order_by(*_newest_first())
    rows = session.exec(query).all()
    names = list(dict.fromkeys(row.name for row in rows))
    if len(names) > 1:
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = ", ".join(map(repr, names[:_MOST_NAMED]))
        raise UsageError(f"{part!r} is a part of {len(names)} campaigns' names: {listed}{more}")
    return rows[:1]


def _earlier(session: Session, name: str, back: int) -> tables.Campaign:
    if name.startswith(LABEL):
        rows, what = campaign_rows(session, name), f"have the label {name.removeprefix(LABEL)!r}"
    else:
        named = _shown().where(tables.Campaign.name == name)
        rows, what = session.exec(named.order_by(*_newest_first())).all(), f"are called {name!r}"
    if back >= len(rows):
        raise UsageError(f"no campaign '{name}~{back}': {len(rows)} of them {what}")
    return rows[back]


def find_cell(session: Session, prefix: str, what: str = "cell") -> str:
    """Return the id of the one cell that begins with `prefix`. Raises `UsageError` for none or several."""
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
            submitted_by=row.submitted_by,
        )
        for row in rows
    ]


def cells_of(session: Session, campaign_no: int | None) -> list[CellRecord]:
    """Return the cells of a campaign in matrix order; None: of every campaign, the newest campaign first."""
    return cells_by_id(session, cell_ids_of(session, campaign_no))


def cell_ids_of(session: Session, campaign_no: int | None) -> Sequence[str]:
    """Return the ids of the same cells as `cells_of`, in the same order."""
    query = select(tables.Cell.cell_id).order_by(
        col(tables.Cell.campaign_no).desc(), col(tables.Cell.position)
    )
    if campaign_no is not None:
        query = query.where(tables.Cell.campaign_no == campaign_no)
    else:
        shown = select(tables.Campaign.no).where(tables.Campaign.purpose == tables.MEASURE)
        query = query.where(col(tables.Cell.campaign_no).in_(shown))
    return session.exec(query).all()


def has_samples(session: Session, sha256: str) -> bool:
    """Whether a result names this file of samples, or of answers to labelled data."""
    # By text: the name lies deep in the JSON, for which the two engines have different operators.
    answers = col(tables.Result.measurement).contains(f'"answers_sha256":"{sha256}"', autoescape=True)
    for named in (tables.Result.samples_sha256 == sha256, answers):  # the second reads every result
        if session.exec(select(tables.Result.attempt_id).where(named).limit(1)).first() is not None:
            return True
    return False


def cell_ids_like(session: Session, prefix: str, limit: int = 20) -> Sequence[str]:
    """Ids of cells that begin with `prefix`."""
    like = col(tables.Cell.cell_id).startswith(prefix, autoescape=True)
    return session.exec(select(tables.Cell.cell_id).where(like).limit(limit)).all()


def cells_by_id(session: Session, cell_ids: Sequence[str]) -> list[CellRecord]:
    """Return these cells, in this order."""
    facts = _Facts(
        devices=dict(session.exec(select(tables.Device.device_id, tables.Device.name)).all()),
        noises=device_noises(session),
        environments=dict(
            session.exec(select(tables.Environment.environment_id, tables.Environment.fields)).all()
        ),
    )
    found: dict[str, CellRecord] = {}
    with collector_paused():
        for chunk in chunks(cell_ids):
            tries = _attempts(session, chunk)
            for cell, campaign, size_bytes, result in _joined(session, chunk):
                found[cell.cell_id] = _cell_record(
                    cell, campaign, size_bytes, result, facts, tries.get(cell.cell_id, ())
                )
    return [found[cell_id] for cell_id in cell_ids if cell_id in found]


@dataclass(frozen=True, slots=True)
class _Facts:
    """Names and noises of devices, and fields of environments, by id."""

    devices: Mapping[str, str]
    noises: Mapping[str, DeviceNoise]
    environments: Mapping[str, Mapping[str, str]]


def device_noises(session: Session) -> dict[str, DeviceNoise]:
    """By how much equal things differ on each device, of those where that was measured."""
    rows = session.exec(select(tables.Device.device_id, tables.Device.noise))
    return {device_id: found for device_id, noise in rows if (found := noise_from(noise)) is not None}


def _joined(
    session: Session, cell_ids: Sequence[str]
) -> Iterator[tuple[tables.Cell, tuple[str, str], int, tables.Result | None]]:
    """Yield cells with name and id of the campaign, size of the model, and the result that each shows."""
    # Not the whole campaign: every row would decode its lists of all models and delegates.
    rows = session.exec(
        select(tables.Cell, tables.Model.size_bytes, tables.Result)
        .join(tables.Model, col(tables.Model.sha256) == tables.Cell.model_sha256)
        .outerjoin(tables.Result, col(tables.Result.attempt_id) == tables.Cell.shown_attempt_id)
        .where(col(tables.Cell.cell_id).in_(cell_ids))
    ).all()
    numbers = {cell.campaign_no for cell, _, _ in rows}
    campaigns = select(tables.Campaign.no, tables.Campaign.name, tables.Campaign.campaign_id)
    found = session.exec(campaigns.where(col(tables.Campaign.no).in_(numbers)))
    named = {no: (name, campaign_id) for no, name, campaign_id in found}
    for cell, size_bytes, result in rows:
        yield cell, named[cell.campaign_no], size_bytes, result


def _cell_record(
    cell: tables.Cell,
    campaign: tuple[str, str],
    size_bytes: int,
    result: tables.Result | None,
    facts: _Facts,
    tries: Sequence[AttemptRecord],
) -> CellRecord:
    measured = None if result is None else result.measurement
    status, again = shown_state(cell.state, shows=result is not None)
    device = (cell.device_id if result is None else result.device_id) or cell.target
    return CellRecord(
        cell_id=cell.cell_id,
        campaign=campaign[0],
        campaign_id=campaign[1],
        model=cell.model,
        model_sha256=cell.model_sha256,
        model_bytes=size_bytes,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=dict(cell.delegate_options),
        device=device,
        device_name=facts.devices.get(device, device),
        level=cell.level,
        status=status,
        reason=reason_of(cell.reason_code, cell.reason_text),
        measurement=None if measured is None else Measurement.model_validate_json(measured),
        environment_id=None if result is None else result.environment_id,
        environment={} if result is None else dict(facts.environments[result.environment_id]),
        facts={} if result is None else dict(result.facts),
        attempts=tuple(tries),
        reused_from=cell.reused_from,
        finished_at=cell.ended_at if result is None else result.received_at,
        noise=facts.noises.get(device),
        plan=MeasurePlan.model_validate(cell.plan),
        inputs={name: InputSpec.model_validate_json(spec) for name, spec in cell.inputs.items()},
        again=again,
    )


def shown_state(state: str, *, shows: bool) -> tuple[str, str | None]:
    """Return the state of the result that a cell shows, and the state of a new measurement meanwhile.

    `shows`: it has a result. Of a cell that is measured again, that is the last one that counted.
    """
    return (CellState.DONE.value, state) if shows and state in OPEN else (state, None)


def _attempts(session: Session, cell_ids: Sequence[str]) -> Mapping[str, Sequence[AttemptRecord]]:
    found: dict[str, list[AttemptRecord]] = defaultdict(list)
    attempt, result = tables.Attempt, tables.Result
    # Columns, not whole rows: a result's measurement is the largest part of both tables, and is not in here.
    rows = session.execute(
        sqlalchemy.select(
            col(attempt.cell_id), col(attempt.attempt_id), col(attempt.attempt_no), col(attempt.device_id),
            col(attempt.state), col(attempt.reason_code), col(attempt.reason_text), col(attempt.started_at),
            col(attempt.ended_at), col(result.duration_ns), col(result.log_tail),
        )
        .outerjoin(result, col(result.attempt_id) == attempt.attempt_id)
        .where(col(attempt.cell_id).in_(cell_ids))
        .order_by(col(attempt.attempt_no))
    )  # fmt: skip
    for cell_id, attempt_id, number, device_id, state, code, text, started, ended, duration, tail in rows:
        found[cell_id].append(
            AttemptRecord(
                attempt_id=attempt_id,
                number=number,
                device_id=device_id,
                state=state,
                reason=reason_of(code, text),
                started_at=started,
                ended_at=ended,
                duration_ns=duration,
                log_tail=tail or "",
            )
        )
    return found


def reason_of(code: str | None, text: str | None) -> Reason | None:
    """Return the reason in a row; None for a complete one, or one without an end."""
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
