"""Gives cells to free devices, and ends the cells that no device is left for.

To choose a cell, to begin its attempt and to put its job into the outbox is one turn.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlmodel import col, select

from agent.wire.messages import JobSpec, Reason, ReasonCode, environment_id
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import attempts
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.cells import jobs as known_jobs
from orchestrator.db.devices import devices
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
from orchestrator.policy.selectors import is_class


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
    """End queued cells that only these devices could run, and those of emptied classes; return how many."""
    cells = turn.exec(
        select(tables.Cell).where(tables.IS_QUEUED, col(tables.Cell.line).in_(device_ids))
    ).all()
    cell_ends.finish_all(
        turn,
        [
            (
                cell,
                CellState.UNSUPPORTED,
                Reason(code=ReasonCode.NO_DEVICE, text=f"device {cell.line} is gone: {why}"),
            )
            for cell in cells
        ],
        now,
    )
    return len(cells) + _fail_classes(turn, why, now)


def fail_left_behind(turn: Turn, attempt_id: str, now: datetime, *, sole: bool) -> int:
    """End the queued cells of the device of an attempt that has ended, if its agent does not name it now.

    The agent's hello could not: the attempt was open then, and its cell was not queued. `sole`: there is no
    other agent; the cells of parked campaigns wait on, as they do after its hello. Returns how many.
    """
    attempt = turn.find_attempt(attempt_id)
    if attempt is None or turn.device(attempt.device_id).present:
        return 0
    if sole:
        present = turn.exec(select(tables.Device.device_id).where(col(tables.Device.present))).all()
        return fail_vanished(turn, present, {}, now)
    return fail_unplaceable(turn, [attempt.device_id], "its agent does not name it any more", now)


def _fail_classes(turn: Turn, why: str, now: datetime) -> int:
    """End the queued cells of classes of which no present device of a willing agent is left."""
    willing = turn.exec(
        select(tables.Device)
        .join(tables.Agent, col(tables.Agent.agent_id) == tables.Device.agent_id)
        .where(col(tables.Device.present), tables.Agent.state == tables.AGENT_ACTIVE)
    ).all()
    served = {line for device in willing for line in picking.lines_served_by(turn, device)}
    # The few known classes are queried one by one; a query for unserved cells would read every queued
    # cell.
    known = turn.exec(select(tables.Pool.line)).all()
    lost = [line for line in known if line not in served]
    queued = select(tables.Cell).where(tables.IS_QUEUED, col(tables.Cell.line).in_(lost))
    cells = turn.exec(queued).all() if lost else []
    hint = {cell.delegate_kind: why for cell in cells}
    cell_ends.finish_all(turn, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in cells], now)
    return len(cells)


def fail_vanished(turn: Turn, device_ids: Sequence[str], hint: Mapping[str, str], now: datetime) -> int:
    """End the queued cells of unparked campaigns that none of the present devices `device_ids` could take.

    `hint`: delegate kind -> why it is missing.
    """
    present = turn.exec(select(tables.Device).where(col(tables.Device.device_id).in_(device_ids))).all()
    served = {line for device in present for line in picking.lines_served_by(turn, device)}
    gone = turn.exec(
        select(tables.Cell)
        .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
        .where(
            ~col(tables.Campaign.parked), tables.IS_QUEUED, col(tables.Cell.line).not_in([*served, NO_DEVICE])
        )
    ).all()
    cell_ends.finish_all(turn, [(c, CellState.UNSUPPORTED, _gone(c, hint)) for c in gone], now)
    return len(gone)


def _gone(cell: tables.Cell, hint: Mapping[str, str]) -> Reason:
    why = hint.get(cell.delegate_kind)
    what = f"device {cell.line} is no longer present"
    if is_class(cell.line):
        what = f"no device of the class {cell.target.rpartition('#')[0]} is present any more"
    return Reason(code=ReasonCode.NO_DEVICE, text=what + (f": {why}" if why else ""))
