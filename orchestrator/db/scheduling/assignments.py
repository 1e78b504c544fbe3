"""Gives cells to free devices: chooses, begins attempts, and puts their jobs into the outbox, all in one
turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from agent.wire.messages import JobSpec, environment_id
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import arms, attempts
from orchestrator.db.cells import jobs as outbox
from orchestrator.db.devices import devices
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.db.results import past as past_results
from orchestrator.policy.assign import Assignment
from orchestrator.policy.fingerprint import fingerprint
from orchestrator.policy.preview import reusable, reuse_rule
from orchestrator.policy.refining import refined_to
from orchestrator.policy.reservation import reservation_of


def fill(turn: Turn, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
    """Begin attempts on these devices, as many as they take. Returns their jobs, each with its agent."""
    jobs: list[tuple[str, JobSpec]] = []
    while chosen := picking.choose(turn, device_ids, now):
        begun = _begin(turn, chosen, now)
        jobs += begun
        if len(begun) == len(chosen):
            break  # otherwise some cells needed no device, and their devices may take the next cells
    outbox.add(turn, jobs, now)
    return jobs


def _begin(turn: Turn, chosen: Sequence[Assignment], now: datetime) -> list[tuple[str, JobSpec]]:
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
    with turn.no_autoflush:
        found = arms.companions(turn, cell, device, now)
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
        if arms.baseline_is_done(turn, cell, str(campaign.baseline_delegate)):
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
        if rule is not None and cell.refines is None:
            since[cell.cell_id] = rule
            series = past_results.ingredients(cell, assignment.device_id).series
            expected = devices.environment_of(turn, device, cell.delegate_kind)
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
