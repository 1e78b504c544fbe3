"""Gives cells to free devices, and ends the cells that no device is left for.

To choose a cell, to begin its attempt and to put its job into the outbox is one turn.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import col, select

from agent.wire.messages import JobSpec, Reason, ReasonCode, environment_id
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import attempts
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.cells import jobs as known_jobs
from orchestrator.db.devices import agents, devices
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.db.results import past as past_results
from orchestrator.policy.assign import Assignment
from orchestrator.policy.blocks import refined_to
from orchestrator.policy.fingerprint import fingerprint
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.matrix import NO_DEVICE
from orchestrator.policy.preview import reusable, reuse_rule
from orchestrator.policy.reservation import reservation_of


def fill(turn: Turn, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
    """Begin attempts on these devices, as many as they take. Returns their jobs, each with its agent."""
    jobs: list[tuple[str, JobSpec]] = []
    while chosen := picking.choose(turn, device_ids, now):
        begun = _begin(turn, chosen, now)
        jobs += begun
        if len(begun) == len(chosen):
            break  # otherwise some cells needed no device, and their devices may take the next cells
    known_jobs.add(turn, jobs, now)
    return jobs


def _begin(turn: Turn, chosen: Sequence[Assignment], now: datetime) -> list[tuple[str, JobSpec]]:
    # Cells before devices: the end of an attempt locks them in this order, too.
    turn.load_cells(assignment.cell_id for assignment in chosen)
    turn.load_devices(assignment.device_id for assignment in chosen)
    # The choice was made without locks: only now that they are held is it certain that the cells wait, and
    # whose the devices are.
    waiting = [
        assignment
        for assignment in chosen
        if attempts.is_still_waiting(turn, turn.cell(assignment.cell_id))
        and not _is_reserved_from(turn, assignment, now)
    ]
    reused = _reuse(turn, waiting, now)
    jobs = []
    for assignment in waiting:
        # One that was chosen beside it may have taken it along as an arm.
        taken = not attempts.is_still_waiting(turn, turn.cell(assignment.cell_id))
        if assignment.cell_id not in reused and not taken:
            agent_id = turn.device(assignment.device_id).agent_id
            jobs.append((agent_id, _begin_with_arms(turn, assignment, now)))
    return jobs


def _is_reserved_from(turn: Turn, assignment: Assignment, now: datetime) -> bool:
    held = reservation_of(turn.device(assignment.device_id), now)
    submitter = turn.campaign(turn.cell(assignment.cell_id).campaign_no).submitted_by
    return held is not None and held.by != submitter


def _begin_with_arms(turn: Turn, assignment: Assignment, now: datetime) -> JobSpec:
    """Begin an attempt, and one at each cell that is measured in blocks with it."""
    cell, device = turn.cell(assignment.cell_id), turn.device(assignment.device_id)
    # What this turn has begun may be found as queued: it is left out below, where its rows are looked at.
    with turn.no_autoflush:
        found = known_jobs.companions(turn, cell, device, now)
    if not found.cells and found.baseline_device_id is None:
        return attempts.begin(turn, assignment, now)
    turn.load_cells(other.cell_id for other in found.cells)
    turn.load_devices(other.device_id for other in found.cells)
    waiting = [
        other
        for other in found.cells
        if attempts.is_still_waiting(turn, turn.cell(other.cell_id))
        # The blocks of one job have one plan.
        and refined_to(turn.cell(other.cell_id).refines) == refined_to(cell.refines)
    ]
    reused = _reuse(turn, waiting, now)
    together = [other for other in waiting if other.cell_id not in reused]
    campaign = turn.campaign(cell.campaign_no)
    names = [turn.cell(one.cell_id).delegate for one in (assignment, *together)]
    again = None
    if campaign.baseline_delegate not in names:
        turn.flush()  # a baseline that was reused a moment ago counts as done
        if known_jobs.baseline_is_done(turn, cell, str(campaign.baseline_delegate)):
            again = found.baseline_device_id
        else:
            together = []  # nothing to compare with: each cell by itself, as soon as its device is free
    return attempts.begin_together(turn, [assignment, *together], again, now)


def _reuse(turn: Turn, waiting: Sequence[Assignment], now: datetime) -> set[str]:
    """Let cells take over what another campaign has measured since they were submitted; returns their ids."""
    since: dict[str, datetime] = {}
    prints: dict[str, str] = {}
    for assignment in waiting:
        cell = turn.cell(assignment.cell_id)
        device = turn.device(assignment.device_id)
        rule = reuse_rule(cell.reuse or turn.campaign(cell.campaign_no).reuse, now)
        # Blocks are added to the cell's own result: no other one can take its place.
        if rule is not None and cell.refines is None:
            since[cell.cell_id] = rule
            series = past_results.ingredients(cell, assignment.device_id).series
            expected = devices.environment_of(turn, device, cell)
            prints[cell.cell_id] = fingerprint(series, environment_id(expected))
    known = past_results.known_by_fingerprint(turn, set(prints.values()))
    reused = set()
    for cell_id, allowed in since.items():
        found = known.get(prints[cell_id])
        shown = turn.cell(cell_id).shown_attempt_id  # which a user wants to have measured again
        if found is not None and found.attempt_id != shown and reusable(found, allowed):
            campaigns.reuse_result(turn, turn.cell(cell_id), found.attempt_id, now)
            reused.add(cell_id)
    return reused


def fail_unplaceable(turn: Turn, device_ids: Sequence[str], why: str, now: datetime) -> int:
    """End queued cells that only these devices could run, and those of classes for which too few devices of
    active agents are left; return how many.
    """
    own = turn.exec(select(tables.Cell).where(tables.IS_QUEUED, col(tables.Cell.line).in_(device_ids)))
    ends = [_without_device(cell, f"device {cell.line} is gone: {why}") for cell in own]
    willing = turn.exec(
        select(tables.Device)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(col(tables.Device.present), tables.Agent.state == tables.AGENT_ACTIVE)
    ).all()
    ends += [_without_device(cell, f"{what}: {why}") for cell, what in _left_over(turn, willing)]
    cell_ends.finish_all(turn, ends, now)
    return len(ends)


def fail_left_behind(turn: Turn, attempt_id: str, now: datetime, *, sole: bool) -> int:
    """End the queued cells that the device of an ended attempt can run no more: its agent does not name it
    now, or leaves.

    Neither could end the attempt's own cell, which was not queued then. `sole`: there is no other agent; the
    cells of parked campaigns wait on, as they do after its hello. Returns how many.
    """
    attempt = turn.find_attempt(attempt_id)
    if attempt is None or turn.cell(attempt.cell_id).state != CellState.QUEUED:
        return 0
    device = turn.device(attempt.device_id)
    if device.present:
        if agents.state_of(turn, device.agent_id) == tables.AGENT_ACTIVE:
            return 0
        why = f"agent {device.agent_id} was drained or removed"
    elif sole:
        present = turn.exec(select(tables.Device.device_id).where(col(tables.Device.present))).all()
        return fail_vanished(turn, present, {}, now)
    else:
        why = f"so says the last hello of agent {device.agent_id}"
    return fail_unplaceable(turn, [device.device_id], why, now)


def fail_vanished(turn: Turn, device_ids: Sequence[str], hint: Mapping[str, str], now: datetime) -> int:
    """End the queued cells of unparked campaigns that none of the present devices `device_ids` could take, or
    that their classes have too few of; return how many.

    `hint`: delegate kind -> why it is missing.
    """
    present = turn.exec(select(tables.Device).where(col(tables.Device.device_id).in_(device_ids))).all()
    unparked = ~col(tables.Campaign.parked)
    others = [*device_ids, *picking.members(turn, ()), NO_DEVICE]
    own = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(unparked, tables.IS_QUEUED, col(tables.Cell.line).not_in(others))
    )
    gone = [(cell, f"device {cell.line} is no longer present") for cell in own]
    gone += _left_over(turn, present, unparked)
    ends = []
    for cell, what in gone:
        why = hint.get(cell.delegate_kind)
        ends.append(_without_device(cell, f"{what}: {why}" if why else what))
    cell_ends.finish_all(turn, ends, now)
    return len(ends)


def _left_over(
    turn: Turn, devices: Sequence[tables.Device], *campaigns_with: ColumnElement[bool]
) -> list[tuple[tables.Cell, str]]:
    """Return the queued cells of classes for which none of these devices is left, each with the reason.

    Cells of one class want different devices: some are those of its other cells, and the first cells that
    wait get the rest.
    """
    members = picking.members(turn, devices)
    cell, campaign = tables.Cell, tables.Campaign
    # Columns alone: of many cells few are left over.
    rows = turn.exec(
        select(cell.cell_id, cell.line, cell.siblings, cell.device_id)
        .join(campaign, col(campaign.no) == cell.campaign_no)
        .where(col(campaign.ended_at).is_(None), col(cell.siblings).is_not(None), *campaigns_with)
        .where(or_(and_(tables.IS_QUEUED, col(cell.line).in_(members)), col(cell.device_id).is_not(None)))
        .order_by(col(cell.campaign_no), col(cell.position))
    )
    waiting: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    had: dict[str | None, set[str]] = defaultdict(set)
    for cell_id, line, siblings, device_id in rows:
        if device_id is None:
            waiting[line, siblings].append(cell_id)
        else:
            had[siblings].add(device_id)
    over = [
        name
        for (line, siblings), names in waiting.items()
        for name in names[len(members[line] - had[siblings]) :]
    ]
    turn.load_cells(over)
    return [(turn.cell(name), _exhausted(turn.cell(name), members)) for name in over]


def _exhausted(cell: tables.Cell, members: Mapping[str, frozenset[str]]) -> str:
    class_ = cell.target.rpartition("#")[0]
    if left := sorted(members[cell.line]):
        return f"the class {class_} has too few devices left: its other cells have or get {', '.join(left)}"
    return f"no device of the class {class_} is present any more"


def _without_device(cell: tables.Cell, text: str) -> tuple[tables.Cell, CellState, Reason]:
    return cell, CellState.UNSUPPORTED, Reason(code=ReasonCode.NO_DEVICE, text=text)
