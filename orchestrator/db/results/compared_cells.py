"""Reads the cells of a campaign as a comparison needs them: a few columns, decoded where they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

import sqlalchemy
from sqlalchemy import Text, cast
from sqlmodel import Session, col, select

from orchestrator.config.collector import collector_paused
from orchestrator.db import tables
from orchestrator.db.results.records import device_noises, reason_of, shown_state
from orchestrator.results.records import IMPORTED_SHA256, ComparedCell, compared_figures

_CELL, _RESULT = tables.Cell, tables.Result

_COLUMNS: Final = (
    col(_CELL.position), col(_CELL.cell_id), col(_CELL.model), col(_CELL.model_sha256), col(_CELL.delegate),
    col(_CELL.delegate_kind), cast(_CELL.delegate_options, Text), col(_CELL.target), col(_CELL.device_id),
    col(_CELL.level), col(_CELL.state), col(_CELL.reason_code), col(_CELL.reason_text),
    col(_CELL.reused_from), col(_RESULT.measurement), col(_RESULT.device_id), col(_RESULT.environment_id),
    cast(_RESULT.facts, Text), col(_CELL.ended_at), col(_RESULT.received_at), col(tables.Model.size_bytes),
)  # fmt: skip
"""JSON as text: most cells have the options of many others, and the facts tell imported ones alone."""


def compared_cells(session: Session, campaign_no: int) -> list[ComparedCell]:
    """Return the cells of a campaign in matrix order."""
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
        .where(col(_CELL.campaign_no) == campaign_no)
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
