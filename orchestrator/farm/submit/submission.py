"""Turns a request into a campaign: planned once, shown, and stored as it was shown."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.config.clock import utc_now
from orchestrator.db import events
from orchestrator.db.campaigns import campaigns, manifests
from orchestrator.db.devices import agents
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results import past as past_results
from orchestrator.db.scheduling import assignments
from orchestrator.errors import FarmError, UsageError
from orchestrator.farm.local.one_machine import PresentDevices
from orchestrator.farm.local.quota import NO_LIMIT, Quota, account
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.fingerprint import Environments
from orchestrator.policy.matrix import ModelFile, expand
from orchestrator.policy.preview import NEVER, CellPreview, PlannedCell, plan_cells
from orchestrator.policy.rights import User
from orchestrator.policy.sharing import equal_hosts
from orchestrator.sources.content import origins_of, without_credentials


@dataclass(frozen=True, slots=True)
class SubmissionPlan:
    """The plan of a submission for each cell. `reuse`: the rule by which earlier results were reused."""

    campaign: Campaign
    reuse: str
    cells: tuple[PlannedCell, ...]

    @property
    def preview(self) -> tuple[CellPreview, ...]:
        """The part of each cell that is shown to people."""
        return tuple(cell.preview for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A stored campaign. `events_before`: the last event before it; `run` reports those after it."""

    campaign_id: str
    events_before: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A campaign that was stored, with what is done with each of its cells."""

    submitted: Submitted
    cells: tuple[CellPreview, ...]


@dataclass(slots=True)
class Order:
    """A planned campaign that can be submitted, here or over HTTP. `preview`: the plan for each cell; once it
    is submitted, as it was stored. `place` stores it, and raises as `Submission.submit`.
    """

    preview: tuple[CellPreview, ...]
    place: Callable[[], Placed]

    def submit(self) -> Submitted:
        """Store the plan."""
        placed = self.place()
        self.preview = placed.cells
        return placed.submitted


@dataclass(frozen=True, slots=True)
class Submission:
    """Plans campaigns for the present devices and stores the plans.

    `user`: who submits, over HTTP; None: whoever runs this process. `quota`: how many cells of the user may
    wait.
    """

    database: Database
    devices: PresentDevices
    user: User | None = None
    quota: Quota = NO_LIMIT

    def order(self, campaign: Campaign, models: Iterable[ModelFile], *, force: bool = False) -> Order:
        """Plan a campaign, to be shown and submitted. Raises as `plan`."""
        plan = self.plan(campaign, models, force=force)
        return Order(plan.preview, lambda: Placed(self.submit(plan), plan.preview))

    def plan(self, campaign: Campaign, models: Iterable[ModelFile], *, force: bool = False) -> SubmissionPlan:
        """Decide every cell: run, reuse, or why neither. Stores nothing.

        `force`: no earlier result is reused. Raises `UsageError`, and `UnreachableError` where no agent
        can be reached.
        """
        hello = self.devices.hello(keep=True)
        environments = Environments(hello.devices)
        files = list(models)
        with self.database.read() as session:
            homes: Mapping[str, str] = {}
            if campaign.shared and equal_hosts(hello.devices):
                homes = past_results.last_devices(session, {file.sha256 for file in files})
            specs = expand(campaign, files, hello.devices, hello.missing, homes)
            past = past_results.past_results(session, specs, environments)
        reuse = NEVER if force else campaign.reuse
        # What a model's own entry says of reuse yields to `force`, too.
        specs = tuple(replace(s, reuse=NEVER) if force and s.reuse is not None else s for s in specs)
        return SubmissionPlan(campaign, reuse, plan_cells(specs, environments, past, reuse, utc_now()))

    def submit(self, plan: SubmissionPlan) -> Submitted:
        """Store the planned cells in one transaction, or find the unfinished campaign with the same content.

        The plan is stored as it is, though time may have passed since it was made. A result that has arrived
        meanwhile is reused by the scheduler when it comes to the cell. A cell whose device's agent was
        drained or removed meanwhile ends `no_device`, as if it had been stored before. Where a result to be
        reused was deleted meanwhile, nothing is stored. Raises `FarmError` for that, and `UsageError` where
        there is no cell to store.
        """
        if all(cell.action == "excluded" for cell in plan.cells):
            raise UsageError(
                f"campaign {plan.campaign.name!r} has no cell: its rules exclude all {len(plan.cells)}"
            )
        user = None if self.user is None else self.user.name
        content = campaigns.content_of(plan.campaign, plan.cells, plan.reuse, user)
        now = utc_now()
        with self.database.write() as turn:
            before = events.newest(turn)
            # Looked up in the write that stores: of two equal ones at once, the second finds the first.
            known = campaigns.find_unfinished(turn, content)
            if known is not None:
                campaigns.resume(turn, known, now)
                return Submitted(known.campaign_id, before)
            _require_reused(turn, plan)
            # Counted in the same write: two submissions at once cannot both take the last places.
            new = sum(cell.action == "run" for cell in plan.cells)
            self.quota.require(self.quota.waiting(turn), new, "this campaign")
            campaign_id = campaigns.add(
                turn, plan.campaign, plan.cells, content, plan.reuse, now, user or account()
            )
            if (written := plan.campaign.written) is not None:
                files = {cell.spec.model: cell.spec.model_sha256 for cell in plan.cells}
                kept = replace(written, document=without_credentials(written.document))
                manifests.keep(turn, campaign_id, kept, origins_of(plan.campaign, files))
            _end_cells_of_agents_that_left(turn, plan, now)
        return Submitted(campaign_id, before)


def _require_reused(turn: Turn, plan: SubmissionPlan) -> None:
    """Raise `FarmError` where a result that the plan shows is gone (`farm db prune` on another machine)."""
    shown = (cell.reused or cell.standing for cell in plan.cells)
    reused = {result.attempt_id for result in shown if result is not None}
    gone = reused - past_results.stored(turn, reused)
    if gone:
        raise FarmError(
            f"{len(gone)} of the results that campaign {plan.campaign.name!r} was to reuse were deleted "
            "after it was planned; nothing was stored: submit it again"
        )


def _end_cells_of_agents_that_left(turn: Turn, plan: SubmissionPlan, now: datetime) -> None:
    # Draining an agent ends the cells that wait for it at that moment; these came a moment later, and nothing
    # else would ever end them.
    planned = {device for cell in plan.cells if cell.action == "run" for device in cell.spec.devices}
    left = agents.leaving(turn)
    lost = planned.intersection(agents.devices_of(turn, list(left)))
    if lost:
        assignments.fail_unplaceable(
            turn, sorted(lost), "its agent left while the campaign was submitted", now
        )
