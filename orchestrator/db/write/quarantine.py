"""Quarantines devices whose faults end cell after cell: they get health checks only, until one passes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func
from sqlmodel import select

from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.write import events, identity
from orchestrator.policy.fingerprint import Ingredients, digest
from orchestrator.policy.lifecycle import MAX_DEVICE_FAULTS, AttemptEnd, CellState, device_verdict
from orchestrator.sources import health_model

CHECK_DELAYS_S: Final = (10.0, 60.0, 600.0, 3600.0)
"""How many seconds a device in quarantine waits for its first, second, ... health check; the last one
repeats. Chosen: a device that was lost for a moment returns soon; a broken one is tried once an hour,
which costs it and its host next to nothing.
"""


def note_end(
    turn: Turn, attempt: tables.Attempt, cell: tables.Cell, ended: AttemptEnd, now: datetime
) -> None:
    """Let the device cool down; after faults on several cells in a row, put it in quarantine."""
    device = turn.device(attempt.device_id)
    if device.cooldown_s:
        device.rests_until = now + timedelta(seconds=device.cooldown_s)
    worked = device_verdict(ended)
    if worked and device.faulty_cells:
        device.faulty_cells = []
    # What one runner carried failed by one fault: it counts once.
    lead = attempt.lead_attempt_id
    blamed = cell.cell_id if lead is None else turn.attempt(lead).cell_id
    if worked is not False or device.quarantined_at is not None or blamed in device.faulty_cells:
        return
    device.faulty_cells = [*device.faulty_cells, blamed]
    if len(device.faulty_cells) >= MAX_DEVICE_FAULTS:
        count = len(device.faulty_cells)
        quarantine(turn, device, f"{count} cells in a row failed: {ended.reason.text}", now)
        text = f"{device.device_id}: {device.quarantine_text}; it is checked soon"
        events.add(turn, cell, "quarantined", f"{text}, or: farm devices release {device.device_id}", now)


def quarantine(turn: Turn, device: tables.Device, text: str, now: datetime) -> None:
    """Give a device only health checks, until one passes or an operator releases it."""
    take_out(device, text, now)
    ensure_check(turn, device, now)


def take_out(device: tables.Device, text: str, now: datetime) -> None:
    """Give a device no work until an operator releases it."""
    device.quarantined_at, device.quarantine_text = now, text


def release(device: tables.Device) -> None:
    """Give a device cells again."""
    device.quarantined_at = device.quarantine_text = None
    device.faulty_cells = []
    device.health_failures = 0


def on_check_ended(turn: Turn, check: tables.Attempt, passed: bool, now: datetime) -> None:
    """Release the device after a health check that passed, else plan the next one.

    A check that began before the device was taken out says nothing about it and changes nothing.
    """
    device = turn.device(check.device_id)
    if device.quarantined_at is not None and check.dispatched_at < device.quarantined_at:
        return
    if passed:
        release(device)
    elif device.quarantined_at is not None:
        device.health_failures += 1
        ensure_check(turn, device, now)


def ensure_check(turn: Turn, device: tables.Device, now: datetime) -> None:
    """Add a health check for a device in quarantine, unless one waits already."""
    if device.quarantined_at is None:
        return
    campaign = _campaign(turn, now)
    turn.flush()
    waits = turn.exec(
        select(tables.Cell.cell_id).where(
            tables.Cell.campaign_no == campaign.no,
            tables.Cell.line == device.device_id,
            tables.IS_OPEN,
        )
    ).first()
    if waits is None:
        delay_s = CHECK_DELAYS_S[min(device.health_failures, len(CHECK_DELAYS_S) - 1)]
        _add_check(turn, campaign, device, now + timedelta(seconds=delay_s))
        campaign.ended_at = None
        turn.flush()


def _campaign(turn: Turn, now: datetime) -> tables.Campaign:
    """The farm's own campaign, which is made when the first check is needed."""
    found = turn.exec(select(tables.Campaign).where(tables.Campaign.purpose == tables.HEALTH)).first()
    if found is not None:
        return found
    made = tables.Campaign(
        campaign_id=identity.campaign_id(),
        name=health_model.MODEL_ID,
        created_at=now,
        submitted_at=now,
        level=health_model.PLAN.level,
        reuse="never",
        manifest_sha256=health_model.model_sha256(),
        content=health_model.MODEL_ID,
        model_names=[health_model.MODEL_ID],
        delegate_names=[],
        labels={},
        purpose=tables.HEALTH,
        ended_at=now,
    )
    turn.add(made)
    turn.flush()
    return made


def _add_check(turn: Turn, campaign: tables.Campaign, device: tables.Device, not_before: datetime) -> None:
    sha256, size_bytes = health_model.model_sha256(), len(health_model.model())
    if turn.get(tables.Model, sha256) is None:
        turn.add(tables.Model(sha256=sha256, size_bytes=size_bytes, added_at=not_before))
        turn.flush()
    number = campaign.no or 0
    position = turn.exec(
        select(func.count()).select_from(tables.Cell).where(tables.Cell.campaign_no == number)
    ).one()
    kind = device.delegates[0]
    key = digest({"device": device.device_id, "position": position})
    turn.add(
        tables.Cell(
            cell_id=identity.cell_id(campaign.campaign_id, key),
            campaign_no=number,
            key=key,
            series=Ingredients(sha256, kind, {}, device.device_id, health_model.PLAN, {}).series,
            position=position,
            model=health_model.MODEL_ID,
            model_sha256=sha256,
            delegate=kind,
            delegate_kind=kind,
            delegate_options={},
            target=device.device_id,
            line=device.device_id,
            level=health_model.PLAN.level,
            plan=health_model.PLAN.model_dump(mode="json"),
            inputs={},
            soft_limit_s=health_model.SOFT_LIMIT_S,
            expected_s=health_model.EXPECTED_S,
            state=CellState.QUEUED.value,
            not_before=not_before,
        )
    )
