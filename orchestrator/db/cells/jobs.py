"""Queries and stores jobs for the broker: in the outbox from the commit of their attempt until they start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import bindparam, delete
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from agent.wire.measurement import Refinement
from agent.wire.messages import Arm, JobSpec
from agent.wire.plan import MeasurePlan
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results.past import input_specs
from orchestrator.policy.fingerprint import digest
from orchestrator.policy.lifecycle import AttemptState
from orchestrator.policy.refining import Refining

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
    return Arm(
        attempt_id=attempt.attempt_id,
        attempt_no=attempt.attempt_no,
        cell_id=cell.cell_id,
        epoch=attempt.epoch,
        device_id=attempt.device_id,
        delegate=cell.delegate,
        delegate_kind=cell.delegate_kind,
        delegate_options=cell.delegate_options,
        refines=_refinement(cell),
    )


def _baseline(lead: tables.Attempt, campaign: tables.Campaign) -> Arm:
    """Return the arm of the campaign's baseline, which is measured again for the ratio alone."""
    return Arm(
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


def _plan(cell: tables.Cell) -> MeasurePlan:
    return MeasurePlan.model_validate(cell.plan)


def _refinement(cell: tables.Cell) -> Refinement | None:
    return None if cell.refines is None else Refining.read(cell.refines).earlier


def _alone(cell: tables.Cell, attempt: tables.Attempt, model_bytes: int) -> JobSpec:
    limit_s, plan = cell.soft_limit_s, _plan(cell)
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
    waiting = attempts.where(
        tables.Attempt.state == AttemptState.DISPATCHED.value, col(tables.Attempt.lead_attempt_id).is_(None)
    )
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
