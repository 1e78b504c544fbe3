"""Quarantines devices whose faults end cell after cell, and keeps the history of their recoveries."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Literal, TypeAlias

from sqlalchemy import or_
from sqlmodel import Session, col, select

from agent.wire.messages import ReasonCode
from orchestrator.db import events, tables
from orchestrator.db.engine import identity
from orchestrator.db.engine.turn import AttemptRows, Turn
from orchestrator.policy.attempt_ends import Moves
from orchestrator.policy.fingerprint import Ingredients, digest
from orchestrator.policy.lifecycle import MAX_DEVICE_FAULTS, CellState
from orchestrator.results.events import DeviceRecovered, RecoveryOutcome
from orchestrator.sources import health_model

CHECK_DELAYS_S: Final = (10.0, 60.0, 600.0, 3600.0)
"""How many seconds a device in quarantine waits for its first, second, ... health check; the last one
repeats. Chosen: a device that was lost for a moment returns soon; a broken one is tried once an hour,
which costs it and its host next to nothing.
"""


def note_end(turn: Turn, rows: AttemptRows, moves: Moves, now: datetime, *, was_live: bool) -> None:
    """Note what the end of an attempt tells of its device. One that was given up before told it then."""
    if was_live:
        _note_fault(turn, rows, moves, now)
    if rows.campaign.purpose == tables.HEALTH and moves.cell.state is not CellState.QUEUED:
        _end_check(turn, rows, moves.cell.state is CellState.DONE, now)


def _note_fault(turn: Turn, rows: AttemptRows, moves: Moves, now: datetime) -> None:
    """Let the device cool down; after faults on several cells in a row, put it in quarantine."""
    device = rows.device
    if device.cooldown_s:
        device.rests_until = now + timedelta(seconds=device.cooldown_s)
    if moves.device_works and device.faulty_cells:
        device.faulty_cells = []
    # What one runner carried failed by one fault: it counts once.
    counted_already = rows.blamed_cell_id in device.faulty_cells
    if moves.device_works is not False or device.quarantined_at is not None or counted_already:
        return
    # A new list each time: SQLAlchemy sees no change within a JSON value.
    device.faulty_cells = [*device.faulty_cells, rows.blamed_cell_id]
    if len(device.faulty_cells) >= MAX_DEVICE_FAULTS:
        count = len(device.faulty_cells)
        quarantine(turn, device, f"{count} cells in a row failed: {moves.attempt.reason.text}", now)
        name = device.device_id
        text = f"{name}: {device.quarantine_text}; it is checked soon, or: farm devices release {name}"
        events.add(turn, rows.cell, "quarantined", text, now)


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


def _end_check(turn: Turn, rows: AttemptRows, passed: bool, now: datetime) -> None:
    """Release the device after a health check that passed, else plan the next one.

    A check that began before the device was taken out says nothing about it and changes nothing.
    """
    device = rows.device
    if device.quarantined_at is not None and rows.attempt.dispatched_at < device.quarantined_at:
        return
    if passed:
        release(device)
    elif device.quarantined_at is not None:
        device.health_failures += 1
        ensure_check(turn, device, now)


def ensure_check(turn: Turn, device: tables.Device, now: datetime) -> None:
    """Add a health check for a device in quarantine, unless one waits already or it has no delegate."""
    if device.quarantined_at is None or not device.delegates:
        return
    campaign = _campaign(turn, now)
    turn.flush()
    waits = turn.exec(
        select(tables.Cell.cell_id).where(
            tables.Cell.campaign_no == campaign.no,
            tables.Cell.line == device.device_id,
            tables.IS_OPEN,
            col(tables.Cell.cancel_asked_at).is_(None),
        )
    ).first()
    if waits is None:
        delay_s = CHECK_DELAYS_S[min(device.health_failures, len(CHECK_DELAYS_S) - 1)]
        _add_check(turn, campaign, device, now + timedelta(seconds=delay_s))
        # The campaign of the checks ends, as any other, with the last one that was open.
        campaign.ended_at = None
        turn.flush()


def unchecked(session: Session) -> list[str]:
    """Return the present devices in quarantine whose health check ended because they were gone.

    One that a person has taken out since is none of them.
    """
    device, cell = tables.Device, tables.Cell
    checks = (
        select(cell.cell_id)
        .join(tables.Campaign, col(tables.Campaign.no) == cell.campaign_no)
        .where(tables.Campaign.purpose == tables.HEALTH, cell.line == device.device_id)
        .correlate(device)
    )
    was_gone = checks.where(
        cell.state == CellState.UNSUPPORTED.value,
        cell.reason_code == ReasonCode.NO_DEVICE.value,
        col(cell.ended_at) >= col(device.quarantined_at),
    )
    found = (
        select(device)
        .join(tables.Agent, col(tables.Agent.agent_id) == device.agent_id)
        .where(col(device.present), col(device.quarantined_at).is_not(None))
        .where(tables.Agent.state == tables.AGENT_ACTIVE)
        .where(was_gone.exists(), ~checks.where(tables.IS_OPEN).exists())
    )
    return [row.device_id for row in session.exec(found) if row.delegates]


def _campaign(turn: Turn, now: datetime) -> tables.Campaign:
    """Return the farm's own campaign; create it when the first check is needed."""
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
    # Its number among all checks: by it each check of a device has a key, and so an id, of its own.
    position = tables.count(turn, tables.Cell, tables.Cell.campaign_no == number)
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


Loss: TypeAlias = Literal["device_faults", "agent_silent"]

RECOVERED_ONCE_IN: Final = timedelta(hours=1)
"""For how long a device is not recovered again. Chosen: a machine that is lost again within an hour needs a
person; switching it off and on more often would only wear it out and disturb what else runs there.
"""


@dataclass(frozen=True, slots=True)
class LostDevice:
    """A device to recover, and why it counts as lost."""

    device_id: str
    agent_id: str
    loss: Loss


def lost(session: Session, silent_before: datetime | None, now: datetime) -> list[LostDevice]:
    """Return the devices whose recovery is due. `silent_before`: an agent whose last message is older counts
    as silent; None: the farm itself has not listened for long enough to call an agent silent.

    A silent agent is one loss, whatever it has: its first device stands for all of them.
    """
    agent, device = tables.Agent, tables.Device
    out = col(device.quarantined_at).is_not(None)
    # Without a moment none counts as silent: the condition then adds nothing to `out`.
    silent = col(agent.heard_at) < silent_before if silent_before is not None else out
    rows = session.exec(
        select(agent, device)
        .join(agent, col(agent.agent_id) == device.agent_id)
        .where(col(device.present), agent.state == tables.AGENT_ACTIVE, col(agent.refused).is_(None))
        .where(or_(out, silent))
        .order_by(col(device.agent_id), col(device.device_id))
    )
    found: list[LostDevice] = []
    for _, group in groupby(rows, key=lambda row: row[0].agent_id):
        found += _of_agent(list(group), silent_before, now)
    return found


def _of_agent(
    rows: Sequence[tuple[tables.Agent, tables.Device]], silent_before: datetime | None, now: datetime
) -> Iterator[LostDevice]:
    agent, first = rows[0]
    if silent_before is not None and agent.heard_at is not None and agent.heard_at < silent_before:
        last = max((at for _, device in rows if (at := _last(device))), default=None)
        if _is_due(agent.heard_at, last, now):
            yield LostDevice(first.device_id, agent.agent_id, "agent_silent")
        return
    for _, device in rows:
        # What a person took out has fewer faults, and is a person's to put back.
        by_the_farm = len(device.faulty_cells) >= MAX_DEVICE_FAULTS
        if by_the_farm and device.quarantined_at and _is_due(device.quarantined_at, _last(device), now):
            yield LostDevice(device.device_id, agent.agent_id, "device_faults")


def _last(device: tables.Device) -> datetime | None:
    """When the last recovery of a device ended, or began where its end is not known."""
    if not device.recoveries:
        return None
    newest = device.recoveries[-1]
    return datetime.fromisoformat(newest["ended_at"] or newest["began_at"])


def _is_due(lost_at: datetime, last: datetime | None, now: datetime) -> bool:
    """Whether this loss came after the last recovery, and the hour after that is over."""
    return last is None or (last < lost_at and now - last >= RECOVERED_ONCE_IN)


KEPT: Final = 20
"""Recoveries of a device that are kept. Chosen: more than a screen shows; each is some hundred bytes of a row
that is read often.
"""


def begin(turn: Turn, lost: LostDevice, now: datetime) -> None:
    """Note that the operator's command is about to start: whatever happens then, it was the hour's one."""
    device = turn.device(lost.device_id)
    entry = {"began_at": now.isoformat(), "ended_at": None, "loss": lost.loss, "outcome": None, "text": ""}
    device.recoveries = [*(device.recoveries or ()), entry][-KEPT:]


def end(turn: Turn, lost: LostDevice, outcome: RecoveryOutcome, text: str, now: datetime) -> None:
    """Note how it ended. What was lost gets work again once a health check passes there."""
    device = turn.device(lost.device_id)
    *before, entry = list(device.recoveries or ())
    device.recoveries = [*before, entry | {"ended_at": now.isoformat(), "outcome": outcome, "text": text}]
    turn.tell(DeviceRecovered(outcome))
    if lost.loss == "agent_silent":
        said = f"agent {lost.agent_id} was silent; its recovery {outcome}: {text}"
        for device_id in _working_devices(turn, lost.agent_id):
            quarantine(turn, turn.device(device_id), said, now)


def _working_devices(turn: Turn, agent_id: str) -> list[str]:
    turn.flush()
    device = tables.Device
    working = (device.agent_id == agent_id, col(device.present), col(device.quarantined_at).is_(None))
    return sorted(turn.exec(select(device.device_id).where(*working)))
