"""Chooses the cells that are measured in blocks with another, and builds the jobs of attempts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import bindparam, delete, or_
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from agent.wire.bounded import MAX_ARMS
from agent.wire.measurement import Refinement
from agent.wire.messages import Arm, JobSpec
from agent.wire.plan import MeasurePlan
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results.past import input_specs
from orchestrator.policy.assign import Assignment
from orchestrator.policy.blocks import Refining, baseline_device, compared_with
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import AttemptState, CellState


@dataclass(frozen=True, slots=True)
class Companions:
    """The waiting cells to measure with a cell, and the device for the baseline, if there is one."""

    cells: tuple[Assignment, ...] = ()
    baseline_device_id: str | None = None


def companions(session: Session, cell: tables.Cell, device: tables.Device, now: datetime) -> Companions:
    """Return the waiting cells of the same model and campaign on this host that share the cell's baseline."""
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    if campaign.baseline_kind is None or campaign.purpose != tables.MEASURE:
        return Companions()
    host = _devices(session, device)
    own = next(other for other in host if other.device_id == device.device_id)
    baseline = baseline_device(own, host, campaign.baseline_kind)
    if baseline is None:
        return Companions()
    together = [
        other.device_id
        for other in compared_with(baseline, host, campaign.baseline_kind)
        if other.quarantined_at is None and (other.rests_until is None or other.rests_until <= now)
    ]
    found = session.exec(
        select(tables.Cell.cell_id, tables.Cell.line)
        .where(
            tables.Cell.campaign_no == cell.campaign_no,
            tables.Cell.model == cell.model,
            tables.IS_QUEUED,
            col(tables.Cell.line).in_(together),
            tables.Cell.cell_id != cell.cell_id,
            or_(col(tables.Cell.not_before).is_(None), col(tables.Cell.not_before) <= now),
        )
        .order_by(col(tables.Cell.position))
        # One arm is left for the baseline, which may have to be measured again.
        .limit(MAX_ARMS - 1)
    )
    # One that rests or is in quarantine must not run the baseline either.
    again = baseline.device_id if baseline.device_id in together else None
    return Companions(tuple(Assignment(*row) for row in found), again)


def baseline_is_done(session: Session, cell: tables.Cell, baseline: str) -> bool:
    """Whether the cell's model has a measured baseline in its campaign, which may be measured once more."""
    query = select(tables.Cell.cell_id).where(
        tables.Cell.campaign_no == cell.campaign_no,
        tables.Cell.model == cell.model,
        tables.Cell.delegate == baseline,
        or_(col(tables.Cell.state) == CellState.DONE.value, col(tables.Cell.shown_attempt_id).is_not(None)),
    )
    return session.exec(query.limit(1)).first() is not None


def _devices(session: Session, device: tables.Device) -> Sequence[tables.Device]:
    query = select(tables.Device).where(tables.Device.agent_id == device.agent_id, tables.Device.present)
    return session.exec(query.order_by(col(tables.Device.device_id))).all()


HARD_LIMIT_AFTER_S: Final = 10.0
"""How many seconds after the soft limit, at which a runner is asked to end, the agent kills it. Chosen: a
runner that ends normally has time to write its measurements. Larger: a hung one holds its device for longer.
"""


def job(
    arms: Sequence[tuple[tables.Cell, tables.Attempt]], campaign: tables.Campaign, model_bytes: int
) -> JobSpec:
    """Describe an attempt to its agent: the first of `arms`, with the others as arms that it carries.

    `model_bytes`: size of the cells' model.
    """
    (cell, attempt), *others = arms
    found = _alone(cell, attempt, model_bytes)
    carried = [_arm(*other) for other in others]
    if attempt.baseline_device_id is not None:
        carried.append(_baseline(attempt, campaign))
    if not carried:
        return found
    named = [(found.delegate, found.attempt_id), *((arm.delegate, arm.attempt_id) for arm in carried)]
    baseline = next((name for delegate, name in named if delegate == campaign.baseline_delegate), None)
    # Drawn from the attempt's id, which is random: a job that is sent again has the same order.
    seed = int(digest({"blocks": attempt.attempt_id})[:8], 16)
    return found.model_copy(update={"arms": tuple(carried), "baseline": baseline, "seed": seed})


def _arm(cell: tables.Cell, attempt: tables.Attempt) -> Arm:
    return Arm.like(
        attempt,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=cell.delegate_options,
        refines=_refinement(cell),
    )


def _baseline(lead: tables.Attempt, campaign: tables.Campaign) -> Arm:
    """Return the arm of the campaign's baseline, which is measured again for the ratio alone."""
    return Arm(
        # No attempt of the database: its id and its epoch are never looked up, because nothing reports it.
        attempt_id=f"{lead.attempt_id}-baseline",
        attempt_no=0,
        cell_id=lead.cell_id,
        epoch=0,
        device_id=str(lead.baseline_device_id),
        delegate=str(campaign.baseline_delegate),
        delegate_kind=str(campaign.baseline_kind),
        delegate_options=campaign.baseline_options or {},
        reported=False,
    )


def _refinement(cell: tables.Cell) -> Refinement | None:
    return None if cell.refines is None else Refining.read(cell.refines).earlier


def _alone(cell: tables.Cell, attempt: tables.Attempt, model_bytes: int) -> JobSpec:
    limit_s, plan = cell.soft_limit_s, MeasurePlan.model_validate(cell.plan)
    return JobSpec(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        cell_id=cell.cell_id,
        epoch=attempt.epoch,
        device_id=attempt.device_id,
        model_id=cell.model,
        model_sha256=cell.model_sha256,
        model_bytes=model_bytes,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=cell.delegate_options,
        plan=plan if cell.refines is None else Refining.read(cell.refines).plan(plan),
        inputs=input_specs(cell.inputs),
        soft_limit_s=limit_s,
        hard_limit_s=limit_s + HARD_LIMIT_AFTER_S,
        refines=_refinement(cell),
    )


def owed(session: Session) -> list[tuple[str, JobSpec]]:
    """Jobs that were not sent yet, with their agents, oldest first."""
    in_outbox = select(tables.Attempt).join(
        tables.Outbox, col(tables.Outbox.attempt_id) == tables.Attempt.attempt_id
    )
    return _jobs(session, in_outbox)


def unstarted(
    session: Session, *, agent_id: str | None = None, before: datetime | None = None
) -> list[tuple[str, JobSpec]]:
    """Sent jobs without any message since: of one agent, or dispatched before a moment."""
    query = select(tables.Attempt).where(col(tables.Attempt.heard_at).is_(None))
    if before is not None:
        query = query.where(tables.Attempt.dispatched_at < before)
    if agent_id is not None:
        query = query.join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id).where(
            tables.Device.agent_id == agent_id
        )
    return _jobs(session, query)


def _jobs(session: Session, attempts: SelectOfScalar[tables.Attempt]) -> list[tuple[str, JobSpec]]:
    # An attempt that another one carries goes in the job of that one.
    waiting = attempts.where(
        tables.Attempt.state == AttemptState.DISPATCHED.value, col(tables.Attempt.lead_attempt_id).is_(None)
    )
    # Ids of attempts begin with their time (`identity.attempt_id`): the oldest comes first.
    found: Iterable[tables.Attempt] = session.exec(waiting.order_by(col(tables.Attempt.attempt_id))).all()
    jobs = []
    for attempt in found:
        cell = session.get_one(tables.Cell, attempt.cell_id)
        device = session.get_one(tables.Device, attempt.device_id)
        model = session.get_one(tables.Model, cell.model_sha256)
        campaign = session.get_one(tables.Campaign, cell.campaign_no)
        arms = [(cell, attempt), *_carried(session, attempt)]
        jobs.append((device.agent_id, job(arms, campaign, model.size_bytes)))
    return jobs


def _carried(session: Session, lead: tables.Attempt) -> list[tuple[tables.Cell, tables.Attempt]]:
    """Return the unfinished attempts that this one carries, with their cells."""
    query = (
        select(tables.Cell, tables.Attempt)
        .join(tables.Attempt, col(tables.Attempt.cell_id) == tables.Cell.cell_id)
        .where(tables.Attempt.lead_attempt_id == lead.attempt_id, tables.IS_LIVE)
        .order_by(col(tables.Cell.position))
    )
    return list(session.exec(query))


_outbox = tables.metadata.tables["outbox"]
_REMOVE: Final = delete(_outbox).where(_outbox.c.attempt_id.in_(bindparam("names", expanding=True)))


def add(turn: Turn, jobs: Iterable[tuple[str, JobSpec]], now: datetime) -> None:
    """Store that these jobs are to be sent: pairs of agent and job."""
    rows = [{"attempt_id": job.attempt_id, "agent_id": agent_id, "queued_at": now} for agent_id, job in jobs]
    turn.insert_at_end(tables.Outbox, rows)


def remove(turn: Turn, attempt_ids: Sequence[str]) -> None:
    """Store that the broker has the jobs of these attempts."""
    turn.at_end(("outbox", "remove"), partial(turn.write_only, _REMOVE, names=list(attempt_ids)))
