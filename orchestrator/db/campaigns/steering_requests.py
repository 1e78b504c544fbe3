"""Stores what users and operators request for campaigns, cells and devices; the scheduler applies it."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase

from sqlalchemy import func
from sqlmodel import col, select

from orchestrator.db import events, tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.cells import waiting
from orchestrator.db.devices import quarantine as device_quarantine
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results import records
from orchestrator.errors import UsageError
from orchestrator.policy.lifecycle import CURABLE, OPEN, CellState, reopen_cell
from orchestrator.policy.matrix import NO_DEVICE
from orchestrator.policy.selectors import class_line
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.events import EventKind
from runtime.common.verdict import Grade


def pause(turn: Turn, ref: str, now: datetime) -> int:
    """Start no more cells of a campaign; running ones continue. Returns how many cells wait."""
    campaign = records.find_campaign(turn, ref)
    campaign.paused_at = campaign.paused_at or now
    return _queued(turn, campaign)


def resume(turn: Turn, ref: str, now: datetime) -> int:
    """Continue a paused campaign; it is owed nothing for its pause. Returns how many cells wait."""
    campaign = records.find_campaign(turn, ref)
    if campaign.paused_at is not None:
        campaign.paused_at = None
        campaigns.rejoin(turn, campaign)
        waiting.restart_clocks(turn, campaign, now)
    return _queued(turn, campaign)


def _queued(turn: Turn, campaign: tables.Campaign) -> int:
    return tables.count(turn, tables.Cell, tables.Cell.campaign_no == campaign.no, tables.IS_QUEUED)


def prioritise(turn: Turn, ref: str, priority: int) -> int:
    """Give a campaign, or one cell, another priority. Returns how many open cells it concerns."""
    cells = _cells(turn, ref)
    if records.campaign_rows(turn, ref):
        records.find_campaign(turn, ref).priority = priority
    still_open = [cell for cell in cells if cell.state in OPEN]
    for cell in still_open:
        cell.rank = -priority
    return len(still_open)


def retry(turn: Turn, ref: str, now: datetime, *, failed_only: bool, grades: Collection[Grade] = ()) -> int:
    """Put ended cells of a campaign, or one cell, back into the queue with all their attempts before them.

    Those that failed, and without `failed_only` those that were cancelled or lacked a device or delegate;
    with `grades` those whose result has one of them, and with both also those that failed. The result of a
    measured cell stands until a new one replaces it. Returns how many cells.
    """
    cells = _cells(turn, ref)
    graded = _graded(turn, cells, grades) if grades else set()
    ended = failed_only or not grades
    again = [
        cell for cell in cells if cell.cell_id in graded or (ended and _may_run_again(cell, failed_only))
    ]
    put_back(turn, again, now, "retry", "asked for by a user")
    return len(again)


def put_back(turn: Turn, cells: Sequence[tables.Cell], now: datetime, kind: EventKind, why: str) -> None:
    """Queue ended cells again, and let their campaigns go on. A `done` cell keeps its result meanwhile.

    `kind`, `why`: the event of each cell.
    """
    for cell in cells:
        _put_back(turn, cell, now)
        events.add(turn, cell, kind, why, now)
    for number in sorted({cell.campaign_no for cell in cells}):
        campaign = turn.campaign(number)
        # While a cancel is in force, no cell of the campaign starts.
        campaign.ended_at = campaign.cancel_asked_at = None
        campaigns.rejoin(turn, campaign)


def _may_run_again(cell: tables.Cell, failed_only: bool) -> bool:
    # Only another submission could find a device for it, or fetch its model.
    if cell.target == NO_DEVICE or cell.model_sha256 == tables.NO_FILE:
        return False
    if cell.state == CellState.FAILED:
        return True
    curable = cell.state == CellState.UNSUPPORTED and cell.reason_code in CURABLE
    return not failed_only and (cell.state == CellState.CANCELLED or curable)


def _graded(turn: Turn, cells: Sequence[tables.Cell], grades: Collection[Grade]) -> set[str]:
    """Return the ids of the cells that show a result of one of these grades."""
    shown = select(tables.Cell.cell_id, tables.Result.grade).join(
        tables.Result, col(tables.Result.attempt_id) == tables.Cell.shown_attempt_id
    )
    rows = turn.exec(shown.where(col(tables.Cell.cell_id).in_([cell.cell_id for cell in cells])))
    return {cell_id for cell_id, grade in rows if grade in grades}


def _put_back(turn: Turn, cell: tables.Cell, now: datetime) -> None:
    last = select(func.max(tables.Attempt.attempt_no)).where(tables.Attempt.cell_id == cell.cell_id)
    cell.retried_after = turn.exec(last).one() or 0
    measured = cell.state == CellState.DONE
    if not measured:
        cell_ends.withdraw(turn, cell)
        cell.device_id = None
    if cell.siblings is not None:
        # Elsewhere it could take the unit of a sibling, and come back to its own where nothing is measured.
        cell.line = str(cell.device_id) if measured else class_line(cell.target, cell.delegate_kind)
    cell.state = reopen_cell(CellState(cell.state), measured=measured).value
    cell.reason_code = cell.reason_text = cell.ended_at = cell.cancel_asked_at = cell.not_before = None
    waiting.start_clock(cell, now)


def _cells(turn: Turn, ref: str) -> Sequence[tables.Cell]:
    """Return the cells of a campaign, or the one cell that `ref` names. Raises `UsageError`."""
    if records.campaign_rows(turn, ref):
        number = records.find_campaign(turn, ref).no
        return turn.exec(select(tables.Cell).where(tables.Cell.campaign_no == number)).all()
    return [turn.cell(records.find_cell(turn, ref, "campaign or cell"))]


def find_device(turn: Turn, name: str) -> tables.Device:
    """Find a device by its id, or by a glob that fits exactly one. Raises `UsageError`."""
    ids = sorted(turn.exec(select(tables.Device.device_id)))
    fits = [known for known in ids if known == name] or [known for known in ids if fnmatchcase(known, name)]
    if len(fits) != 1:
        close = get_close_matches(name, ids, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(ids) or 'none'}"
        several = f"{name!r} fits several devices: {', '.join(fits)}"
        raise UsageError(several if fits else f"no device is called {name!r}; {hint}")
    return turn.device(fits[0])


def quarantine(turn: Turn, name: str, why: str, now: datetime, *, check: bool = False) -> str:
    """Take a device out until it is released, or `check` until a health check passes; return its id."""
    device = find_device(turn, name)
    # One from before tells nothing of this, and must not release what a person takes out.
    _cancel_checks(turn, device, now)
    if check:
        device_quarantine.quarantine(turn, device, why, now)
    else:
        device_quarantine.take_out(device, why, now)
        device.faulty_cells = []  # by which `device_quarantine.lost` knows what the farm took out
    return device.device_id


def release(turn: Turn, device: tables.Device, now: datetime) -> None:
    """End the quarantine of a device; its health checks are cancelled."""
    device_quarantine.release(device)
    _cancel_checks(turn, device, now)


def _cancel_checks(turn: Turn, device: tables.Device, now: datetime) -> None:
    checks = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            tables.Campaign.purpose == tables.HEALTH,
            tables.Cell.line == device.device_id,
            # One that runs, too: interrupted, it would be tried again, and then count.
            tables.IS_OPEN,
        )
    ).all()
    campaigns.cancel_cells(turn, checks, now)


def record_noise(turn: Turn, device_id: str, noise: DeviceNoise) -> None:
    """Store what a series found, in place of what an earlier one did."""
    turn.device(device_id).noise = asdict(noise)


def cool_down(turn: Turn, name: str, seconds: float) -> str:
    """Set how long a device rests after each attempt. Returns its id."""
    device = find_device(turn, name)
    device.cooldown_s = seconds
    return device.device_id
