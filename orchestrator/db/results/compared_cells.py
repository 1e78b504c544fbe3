"""Reads the cells of a campaign as a comparison needs them: a few columns, decoded where they are used.

What is unchanged need not be read: `cell_groups` digests the cells of every model in the database.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache, reduce
from operator import itemgetter
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Text, case, cast, func
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from orchestrator.config.collector import collector_paused
from orchestrator.db import tables
from orchestrator.db.results.records import device_noises, reason_of, shown_state
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import IMPORTED_SHA256, CellGroup, ComparedCell, compared_figures

_CELL, _RESULT = tables.Cell, tables.Result

_COLUMNS: Final = (
    col(_CELL.position), col(_CELL.cell_id), col(_CELL.model), col(_CELL.model_sha256), col(_CELL.delegate),
    col(_CELL.delegate_kind), cast(_CELL.delegate_options, Text), col(_CELL.target), col(_CELL.device_id),
    col(_CELL.level), col(_CELL.state), col(_CELL.reason_code), col(_CELL.reason_text),
    col(_CELL.reused_from), col(_RESULT.measurement), col(_RESULT.device_id), col(_RESULT.environment_id),
    cast(_RESULT.facts, Text), col(_CELL.ended_at), col(_RESULT.received_at), col(tables.Model.size_bytes),
)  # fmt: skip
"""JSON as text: most cells have the options of many others, and the facts tell imported ones alone."""


def compared_cells(session: Session, campaign_no: int, model: str | None = None) -> list[ComparedCell]:
    """Return the cells of a campaign, or of one model in it, in matrix order."""
    names = dict(session.exec(select(tables.Device.device_id, tables.Device.name)).all())
    noises = device_noises(session)
    fields = select(tables.Environment.environment_id, tables.Environment.fields)
    environments = dict(session.exec(fields).all())
    options: dict[str, Mapping[str, Any]] = {}
    campaign = session.exec(
        select(tables.Campaign.campaign_id).where(tables.Campaign.no == campaign_no)
    ).one()
    rows = session.execute(
        sqlalchemy.select(*_COLUMNS)
        .join(tables.Model, col(tables.Model.sha256) == _CELL.model_sha256)
        .outerjoin(_RESULT, col(_RESULT.attempt_id) == _CELL.shown_attempt_id)
        .where(col(_CELL.campaign_no) == campaign_no, *(() if model is None else (_CELL.model == model,)))
    ).all()
    found = []
    with collector_paused():
        # Not sorted by the database, which would copy all measurements for it.
        for (
            _, cell_id, model, model_sha256, delegate, kind, given, target, own_device, level, state, code,
            why, reused_from, measurement, measured_on, environment_id, facts,
            ended_at, received_at, size_bytes,
        ) in sorted(rows, key=itemgetter(0)):  # fmt: skip
            if given not in options:
                options[given] = json.loads(given)
            device = measured_on or own_device or target
            status, again = shown_state(state, shows=measured_on is not None)
            found.append(
                ComparedCell(
                    cell_id=cell_id,
                    model=model,
                    model_sha256=model_sha256,
                    delegate=delegate,
                    delegate_kind=kind,
                    delegate_options=options[given],
                    device=device,
                    device_name=names.get(device, device),
                    level=level,
                    status=status,
                    reason=reason_of(code, why),
                    measurement=None if measurement is None else compared_figures(measurement),
                    environment=environments.get(environment_id, {}),
                    reused_from=reused_from,
                    noise=noises.get(device),
                    facts=_imported(facts),
                    again=again,
                    campaign_id=campaign,
                    model_bytes=size_bytes,
                    finished_at=received_at or ended_at,
                )
            )
    return found


_END, _NEXT = "\x1f", "\x1e"
"""Between the texts of a cell, and between cells: separators of ASCII, which hardly a name has."""


def cell_groups(session: Session) -> list[CellGroup]:
    """Return the cells of every campaign by model, in matrix order, digested from texts of the database.

    A result is never changed, so its id stands for it; a device's name and noise are a part of the digest. Of
    a cell that has not ended the number of its attempts is one: it may wait again after a failed one.
    """
    tried = select(func.max(tables.Attempt.attempt_no)).where(col(tables.Attempt.cell_id) == _CELL.cell_id)
    tries = case((tables.IS_OPEN, tried.correlate(_CELL).scalar_subquery()))
    device = func.coalesce(col(_CELL.device_id), col(_CELL.target))
    columns = _joined(col(_CELL.delegate), device, col(_CELL.level))
    changing = _joined(
        col(_CELL.cell_id), device, col(_CELL.state), col(_CELL.model_sha256), col(_CELL.shown_attempt_id),
        col(_CELL.reused_from), cast(_CELL.ended_at, Text), col(_CELL.reason_code), col(_CELL.reason_text),
        cast(tries, Text),
    )  # fmt: skip
    rows = session.execute(
        sqlalchemy.select(
            col(tables.Campaign.campaign_id), col(_CELL.model), func.max(col(_CELL.model_sha256)),
            func.count(), func.aggregate_strings(columns, _NEXT), func.aggregate_strings(changing, _NEXT),
        )
        .join(tables.Campaign, col(tables.Campaign.no) == _CELL.campaign_no)
        .group_by(tables.Campaign.campaign_id, col(_CELL.model))
        .order_by(func.min(col(_CELL.position)))
    )  # fmt: skip
    origins, facts = _origins(session), _device_facts(session)

    @cache
    def split(joined: str) -> tuple[tuple[tuple[str, str, str], ...], str]:
        # Most models of a campaign have the same columns.
        parts = ((*one.split(_END), "", "") for one in joined.split(_NEXT))
        found = tuple(sorted({(one[0], one[1], one[2]) for one in parts}))
        return found, repr([facts.get(device) for _, device, _ in found])

    return [
        CellGroup(
            campaign_id=campaign,
            model=model,
            model_sha256=sha256,
            count=count,
            # Sorted: in which order the database joined them is open.
            content=_digest(split(given)[1], *sorted(cells.split(_NEXT))),
            columns=split(given)[0],
            origins=tuple(sorted(origins[campaign, model])),
        )
        for campaign, model, sha256, count, given, cells in rows
    ]


def _joined(*columns: Any) -> Any:
    """Write columns as one text; nothing is written as the empty text."""
    # In SQL one NULL would make the whole text NULL.
    texts: list[Any] = [func.coalesce(one, "") for one in columns]
    return reduce(lambda joined, one: joined.concat(_END).concat(one), texts)


def _digest(*texts: str) -> str:
    return hashlib.sha256(_NEXT.join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def _origins(session: Session) -> Mapping[tuple[str, str], set[tuple[str, str]]]:
    """Return campaign and model of the cells that those of a campaign and model show the results of."""
    shown, at, of = aliased(_CELL), aliased(tables.Campaign), aliased(tables.Campaign)
    found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    rows = session.execute(
        sqlalchemy.select(col(at.campaign_id), col(_CELL.model), col(of.campaign_id), col(shown.model))
        .join(shown, col(shown.cell_id) == _CELL.reused_from)
        .join(at, col(at.no) == _CELL.campaign_no)
        .join(of, col(of.no) == shown.campaign_no)
        .distinct()
    )
    for campaign, model, *origin in rows:
        found[campaign, model].add((origin[0], origin[1]))
    return found


def _device_facts(session: Session) -> Mapping[str, tuple[str, DeviceNoise | None]]:
    noises = device_noises(session)
    names = session.exec(select(tables.Device.device_id, tables.Device.name))
    return {device_id: (name, noises.get(device_id)) for device_id, name in names}


def stored_measurements(session: Session, campaign_no: int) -> dict[str, str]:
    """Return the measurement that each cell of a campaign shows, as the JSON text that is stored."""
    rows = session.execute(
        sqlalchemy.select(col(_CELL.cell_id), col(_RESULT.measurement))
        .join(_RESULT, col(_RESULT.attempt_id) == _CELL.shown_attempt_id)
        .where(col(_CELL.campaign_no) == campaign_no, col(_RESULT.measurement).is_not(None))
    )
    return {cell_id: text for cell_id, text in rows if text is not None}


def _imported(facts: str | None) -> Mapping[str, str]:
    return {} if facts is None or IMPORTED_SHA256 not in facts else json.loads(facts)
