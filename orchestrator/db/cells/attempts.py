"""Begins attempts, follows them, and ends them together with the consequence for their cells."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from agent.wire.exclusion import joint_group
from agent.wire.messages import Heartbeat, JobSpec, Reason, ReasonCode
from orchestrator.db import events, tables
from orchestrator.db.cells import ends as cell_ends
from orchestrator.db.cells import jobs, waiting
from orchestrator.db.devices import quarantine
from orchestrator.db.engine import identity
from orchestrator.db.engine.turn import AttemptRows, Turn
from orchestrator.policy.assign import Assignment
from orchestrator.policy.attempt_ends import AttemptEnd, Known, Moves, RetryRule
from orchestrator.policy.lifecycle import LIVE_ATTEMPT, AttemptState, CellState, move_attempt, move_cell
from orchestrator.results.events import AttemptBegun, AttemptEnded

DEADLINE_AFTER_S: Final = 60.0
"""How many seconds after an attempt's hard limit the server stops waiting for it. Chosen: the agent has
time to kill the runner and to upload its files, and its message to arrive. Smaller: an attempt that the agent
just ended is taken for lost; larger: a device whose agent fails to end its runner is idle for longer.
"""

Standing: TypeAlias = Literal["wanted", "unwanted", "stale"]


def is_still_waiting(turn: Turn, cell: tables.Cell) -> bool:
    """Whether a cell that was chosen a moment ago may still begin."""
    campaign = turn.campaign(cell.campaign_no)
    wanted = not campaign.parked and campaign.paused_at is None and campaign.cancel_asked_at is None
    return cell.state == CellState.QUEUED and wanted


def begin(turn: Turn, assignment: Assignment, now: datetime) -> JobSpec:
    """Open an attempt: the device's epoch grows, the cell is dispatched. Returns the job to offer.

    Raises `IllegalMoveError` where the cell does not wait any more.
    """
    return begin_together(turn, [assignment], None, now)


def begin_together(
    turn: Turn, assignments: Sequence[Assignment], baseline_device_id: str | None, now: datetime
) -> JobSpec:
    """Open attempts that are measured together by blocks, in the message and the lease of the first one.

    `baseline_device_id`: where the baseline is measured again for the ratio alone. Returns the job to offer.
    Raises `IllegalMoveError` where a cell does not wait any more.
    """
    devices = {one.device_id: turn.device(one.device_id) for one in assignments}
    # Once for each device: arms that share one have one epoch, and none makes a result of the others late.
    for device in devices.values():
        device.epoch += 1  # from now on a result of an earlier attempt on this device is late
    groups = [device.exclusion_group for device in devices.values()]
    if baseline_device_id is not None:
        groups.append(turn.device(baseline_device_id).exclusion_group)
    # There is a joint one: only devices that can be leased together are compared (`policy.blocks`).
    group = joint_group(groups) or groups[0]
    count = len(assignments) + (baseline_device_id is not None)
    begun: list[tables.Attempt] = []
    for assignment in assignments:
        cell = turn.cell(assignment.cell_id)
        cell.state = move_cell(CellState(cell.state), CellState.DISPATCHED).value
        cell.device_id = assignment.device_id
        before = turn.history(cell.cell_id)
        attempt = tables.Attempt(
            attempt_id=identity.attempt_id(),
            cell_id=cell.cell_id,
            attempt_no=before[-1].attempt_no + 1 if before else 1,
            device_id=assignment.device_id,
            exclusion_group=group,
            epoch=devices[assignment.device_id].epoch,
            state=AttemptState.DISPATCHED.value,
            lead_attempt_id=begun[0].attempt_id if begun else None,
            baseline_device_id=None if begun else baseline_device_id,
            arms=count,
            dispatched_at=now,
        )
        turn.add_attempt(attempt)
        begun.append(attempt)
        # Charged in advance: the next choice, in this turn or another, must see the campaign as served.
        turn.charge(cell.campaign_no, cell.expected_s, now)
        events.add(turn, cell, "dispatched", f"to {assignment.device_id}", now)
    turn.tell(AttemptBegun(group, _ready_at(turn, begun[0]), now))
    pairs = [(turn.cell(attempt.cell_id), attempt) for attempt in begun]
    lead = pairs[0][0]
    return jobs.job(pairs, turn.campaign(lead.campaign_no), turn.model(lead.model_sha256).size_bytes)


def _ready_at(turn: Turn, attempt: tables.Attempt) -> datetime:
    """Since when the attempt could have begun on a device that was free."""
    cell = turn.cell(attempt.cell_id)
    submitted_at = turn.campaign(cell.campaign_no).submitted_at
    rests_until = turn.device(attempt.device_id).rests_until
    return max(at for at in (submitted_at, cell.not_before, rests_until) if at is not None)


def start(turn: Turn, attempt_id: str, epoch: int, now: datetime) -> bool:
    """Note that the runner is about to start: its deadline begins. False for an outdated message."""
    attempt = turn.find_attempt(attempt_id)
    if attempt is None or attempt.epoch != epoch or attempt.state != AttemptState.DISPATCHED:
        return False
    cell = turn.cell(attempt.cell_id)
    attempt.state = move_attempt(AttemptState(attempt.state), AttemptState.RUNNING).value
    attempt.started_at = now
    attempt.phase = ""
    # They take turns: the last one may end once all have used up their time.
    limit_s = attempt.arms * (cell.soft_limit_s + jobs.HARD_LIMIT_AFTER_S) + DEADLINE_AFTER_S
    attempt.deadline_at = now + timedelta(seconds=limit_s)
    cell.state = move_cell(CellState(cell.state), CellState.RUNNING).value
    events.add(turn, cell, "started", f"attempt {attempt.attempt_no} on {attempt.device_id}", now)
    return True


def note_heartbeat(turn: Turn, beat: Heartbeat, now: datetime) -> Standing:
    """Store a heartbeat. Stale: its attempt has ended or has another epoch; unwanted: cancel it."""
    attempt = turn.find_attempt(beat.attempt_id)
    if attempt is None or attempt.epoch != beat.epoch or attempt.state not in LIVE_ATTEMPT:
        return "stale"
    attempt.phase, attempt.heard_at = beat.phase, now
    cell = turn.cell(attempt.cell_id)
    campaign = turn.campaign(cell.campaign_no)
    unwanted = cell.cancel_asked_at or campaign.cancel_asked_at or attempt.stop_asked
    return "unwanted" if unwanted else "wanted"


def ask_to_stop(turn: Turn, attempt_ids: Iterable[str]) -> None:
    """Store that the orchestrator itself stops these attempts: their end does not count as a failure."""
    for attempt_id in attempt_ids:
        turn.attempt(attempt_id).stop_asked = True


def known_of(rows: AttemptRows) -> Known:
    """Return what is known of an attempt whose end is to be stored."""
    attempt, cell = rows.attempt, rows.cell
    return Known(
        state=AttemptState(attempt.state),
        code=None if attempt.reason_code is None else ReasonCode(attempt.reason_code),
        cell=CellState(cell.state),
        is_last=rows.tries[-1].attempt_id == attempt.attempt_id and rows.device.epoch == attempt.epoch,
        earlier=[
            AttemptEnd(
                AttemptState(row.state),
                Reason(code=ReasonCode(str(row.reason_code)), text=row.reason_text or ""),
            )
            for row in rows.tries
            # A user's `retry` gives the cell all its attempts anew.
            if cell.retried_after < row.attempt_no < attempt.attempt_no
        ],
        cancel_asked=cell.cancel_asked_at is not None or rows.campaign.cancel_asked_at is not None,
        retry=RetryRule.read(cell.retry),
        shows=cell_ends.stands(cell),
    )


def end(turn: Turn, rows: AttemptRows, moves: Moves, now: datetime) -> None:
    """Close an attempt, and move its cell and its device as was decided."""
    attempt, cell = rows.attempt, rows.cell
    was_live = attempt.state in LIVE_ATTEMPT
    attempt.state = moves.attempt.state.value
    attempt.reason_code = moves.attempt.reason.code.value
    attempt.reason_text = moves.attempt.reason.text
    attempt.ended_at = now
    turn.tell(AttemptEnded(attempt.exclusion_group, moves.attempt.reason.code.value, now))
    if was_live:
        # `begin` charged the expected time: the actual time replaces it.
        # Arms take turns for the whole time of their runner: each is charged its part.
        taken_s = (now - attempt.dispatched_at).total_seconds() / attempt.arms
        turn.charge(cell.campaign_no, taken_s - cell.expected_s)
    if moves.withdraws:
        cell_ends.withdraw(turn, cell)
    if moves.cell.state is CellState.QUEUED:
        waiting.wait_again(turn, cell, moves, now)
    else:
        cell_ends.finish(turn, cell, moves.cell.state, moves.cell.reason, now)
    # After its cell: a health check that has ended does not keep the next one from being added.
    quarantine.note_end(turn, rows, moves, now, was_live=was_live)
