"""What users and operators want of campaigns, cells and devices: written here, obeyed by the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase

from sqlalchemy import func
from sqlmodel import Session, col, select

from agent.wire.messages import ReasonCode
from orchestrator.db import tables
from orchestrator.db.read import records
from orchestrator.db.write import attempts, campaigns, events
from orchestrator.db.write import quarantine as device_quarantine
from orchestrator.errors import UsageError
from orchestrator.policy.lifecycle import CellState, cancelled_reason, reopen_cell
from orchestrator.policy.matrix import NO_DEVICE

_CURABLE = (ReasonCode.NO_DEVICE.value, ReasonCode.DELEGATE_MISSING.value)


def pause(session: Session, ref: str, now: datetime) -> int:
    """Let nothing of a campaign start; what runs goes on. Returns how many cells wait."""
    campaign = records.find_campaign(session, ref)
    campaign.paused_at = campaign.paused_at or now
    return _queued(session, campaign)


def resume(session: Session, ref: str) -> int:
    """Let a paused campaign go on; it is owed nothing for its pause. Returns how many cells wait."""
    campaign = records.find_campaign(session, ref)
    if campaign.paused_at is not None:
        campaign.paused_at = None
        campaigns.rejoin(session, campaign)
    return _queued(session, campaign)


def _queued(session: Session, campaign: tables.Campaign) -> int:
    return session.exec(
        select(func.count())
        .select_from(tables.Cell)
        .where(tables.Cell.campaign_no == campaign.no, tables.Cell.state == CellState.QUEUED.value)
    ).one()


def prioritise(session: Session, ref: str, priority: int) -> int:
    """Give a campaign, or one cell, another priority. Returns how many open cells it concerns."""
    cells = _cells(session, ref)
    if records.campaign_rows(session, ref):
        records.find_campaign(session, ref).priority = priority
    waiting = [cell for cell in cells if cell.state in tables.OPEN_WORDS]
    for cell in waiting:
        cell.rank = -priority
    return len(waiting)


def retry(session: Session, ref: str, now: datetime, *, failed_only: bool) -> int:
    """Put ended cells of a campaign, or one cell, back in line with all their attempts before them.

    Those that failed, and without `failed_only` those that were cancelled or lacked a device or delegate.
    A result that decided a cell stays as evidence and counts no more. Returns how many cells.
    """
    again = [cell for cell in _cells(session, ref) if _may_run_again(cell, failed_only)]
    for cell in again:
        _put_back(session, cell, now)
    for number in sorted({cell.campaign_no for cell in again}):
        campaign = session.get_one(tables.Campaign, number)
        campaign.ended_at = campaign.cancel_asked_at = None
        campaigns.rejoin(session, campaign)
    return len(again)


def _may_run_again(cell: tables.Cell, failed_only: bool) -> bool:
    if cell.target == NO_DEVICE:
        return False
    if cell.state == CellState.FAILED:
        return True
    curable = cell.state == CellState.UNSUPPORTED and cell.reason_code in _CURABLE
    return not failed_only and (cell.state == CellState.CANCELLED or curable)


def _put_back(session: Session, cell: tables.Cell, now: datetime) -> None:
    last = select(func.max(tables.Attempt.attempt_no)).where(tables.Attempt.cell_id == cell.cell_id)
    cell.retried_after = session.exec(last).one() or 0
    counted = select(tables.Result).where(tables.Result.cell_id == cell.cell_id, col(tables.Result.counted))
    for result in session.exec(counted):
        result.counted = False
    cell.state = reopen_cell(CellState(cell.state)).value
    cell.reason_code = cell.reason_text = cell.ended_at = cell.cancel_asked_at = cell.not_before = None
    cell.shown_attempt_id = cell.reused_from = cell.device_id = None
    events.add(session, cell, "retry", "asked for by a user", now)


def _cells(session: Session, ref: str) -> Sequence[tables.Cell]:
    """The cells of a campaign, or the one cell that is meant. Raises `UsageError`."""
    if records.campaign_rows(session, ref):
        number = records.find_campaign(session, ref).no
        return session.exec(select(tables.Cell).where(tables.Cell.campaign_no == number)).all()
    return [session.get_one(tables.Cell, records.find_cell(session, ref, "campaign or cell"))]


def find_device(session: Session, name: str) -> tables.Device:
    """A device by its id, or a glob that fits one. Raises `UsageError`."""
    ids = sorted(session.exec(select(tables.Device.device_id)))
    fits = [known for known in ids if known == name] or [known for known in ids if fnmatchcase(known, name)]
    if len(fits) != 1:
        close = get_close_matches(name, ids, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(ids) or 'none'}"
        several = f"{name!r} fits several devices: {', '.join(fits)}"
        raise UsageError(several if fits else f"no device is called {name!r}; {hint}")
    return session.get_one(tables.Device, fits[0], with_for_update=True)


def quarantine(session: Session, name: str, why: str, now: datetime, *, check: bool = False) -> str:
    """Take a device out until somebody releases it, or with `check` until a health check passes. Returns
    its id.
    """
    device = find_device(session, name)
    if check:
        device_quarantine.quarantine(session, device, why, now)
    else:
        device_quarantine.take_out(device, why, now)
        _cancel_checks(session, device, now)
    return device.device_id


def release(session: Session, name: str, now: datetime) -> str:
    """Give a device cells again; health checks that wait for it are cancelled. Returns its id."""
    device = find_device(session, name)
    device_quarantine.release(device)
    _cancel_checks(session, device, now)
    return device.device_id


def _cancel_checks(session: Session, device: tables.Device, now: datetime) -> None:
    checks = session.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            tables.Campaign.purpose == tables.HEALTH,
            tables.Cell.line == device.device_id,
            tables.Cell.state == CellState.QUEUED.value,
        )
    ).all()
    attempts.finish_all(session, [(c, CellState.CANCELLED, cancelled_reason()) for c in checks], now)


def cool_down(session: Session, name: str, seconds: float) -> str:
    """How long a device rests after each attempt. Returns its id."""
    device = find_device(session, name)
    device.cooldown_s = seconds
    return device.device_id
