"""Gives cells to free devices: chooses, begins attempts, and puts their jobs into the outbox, all in one
turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from agent.wire.messages import JobSpec
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.db.read import past_results
from orchestrator.db.write import attempts, campaigns, outbox
from orchestrator.policy.assign import Assignment
from orchestrator.policy.fingerprint import fingerprint
from orchestrator.policy.preview import reusable, reuse_limit


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
    # The choice was made without locks: only now that the cells are held is it certain that they wait.
    waiting = [
        assignment for assignment in chosen if attempts.is_still_waiting(turn, turn.cell(assignment.cell_id))
    ]
    reused = _reuse(turn, waiting, now)
    return [
        (turn.device(assignment.device_id).agent_id, attempts.begin(turn, assignment, now))
        for assignment in waiting
        if assignment.cell_id not in reused
    ]


def _reuse(turn: Turn, waiting: Sequence[Assignment], now: datetime) -> set[str]:
    """Let cells take over what another campaign has measured since they were submitted; returns their ids."""
    limits: dict[str, datetime] = {}
    prints: dict[str, str] = {}
    for assignment in waiting:
        cell = turn.cell(assignment.cell_id)
        device = turn.device(assignment.device_id)
        limit = reuse_limit(turn.campaign(cell.campaign_no).reuse, now)
        if limit is not None:
            limits[cell.cell_id] = limit
            series = past_results.ingredients(cell, assignment.device_id).series
            prints[cell.cell_id] = fingerprint(series, device.environment_id)
    known = past_results.known_by_fingerprint(turn, set(prints.values()))
    reused = set()
    for cell_id, limit in limits.items():
        found = known.get(prints[cell_id])
        if found is not None and reusable(found, limit):
            campaigns.reuse_result(turn, turn.cell(cell_id), found.attempt_id, now)
            reused.add(cell_id)
    return reused
