"""Adds blocks to the vaguest results of a campaign: checks that they can be added, and queues the cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from agent.wire.measurement import Refinement
from agent.wire.messages import AgentHello
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.db import events, tables
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.cells import waiting
from orchestrator.db.engine.sessions import Database, Session
from orchestrator.db.engine.turn import Turn
from orchestrator.db.results import records
from orchestrator.endpoint.client import host_of_files
from orchestrator.errors import UsageError
from orchestrator.farm.again.rerunning import no_host
from orchestrator.farm.again.steering import require_own
from orchestrator.farm.local.one_machine import PresentDevices
from orchestrator.farm.local.quota import NO_LIMIT, Quota
from orchestrator.farm.submit.submission import Submitted
from orchestrator.policy.blocks import Refining, require_target
from orchestrator.policy.fingerprint import Environments
from orchestrator.policy.lifecycle import CellState
from orchestrator.policy.rights import User
from orchestrator.results.grading import Vague, vague_cells
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import Baselines, stored_ratio
from orchestrator.sources.store import Store


@dataclass(frozen=True, slots=True)
class Refined:
    """The queued refinement. `cells`: their ids, the vaguest first; `left_out`: vague cells to which no block
    can be added, by name, with the reason; `seconds`: the expected duration, 0 if unknown.
    """

    submitted: Submitted
    cells: tuple[str, ...]
    left_out: Mapping[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Refinements:
    """Refines campaigns. `user`, `quota`: as of `Steering`."""

    database: Database
    devices: PresentDevices
    home: FarmHome
    user: User | None = None
    quota: Quota = NO_LIMIT

    def refine(
        self, ref: str, target: float | None = None, seconds: float | None = None, cells: tuple[str, ...] = ()
    ) -> Refined:
        """Queue the vaguest cells of a campaign again, so that blocks are added to their results.

        `target` and the ids `cells`: as for `vague_cells`; `seconds`: no cell begins after so many.
        Raises `UsageError` where the campaign has not ended, was imported, or none of its vague results can
        be refined because the model, the device or the environment is gone or another; nothing has changed
        then. Raises `UnreachableError` where no agent can be reached.
        """
        if target is not None:
            require_target(target)
        if seconds is not None and seconds <= 0:
            raise UsageError("there is no time for more blocks: give more than 0 seconds")
        with self.database.read() as session:  # before an agent is started for nothing
            self._refinable(session, ref)
        present = self.devices.hello(keep=True)
        # Asked again: the campaign may have changed while the agent was starting.
        with self.database.write() as turn:
            campaign, found = self._refinable(turn, ref)
            vague, beyond = vague_cells(found, campaign.baseline_delegate, target, cells)
            baselines = Baselines.among(campaign.baseline_delegate, found)
            obstacles = [(one, self._obstacle(one.cell, baselines, present)) for one in vague]
            hindered = {_name(one.cell): why for one, why in obstacles if why is not None}
            chosen = [one for one, why in obstacles if why is None]
            if hindered and not chosen:
                raise UsageError(_cannot(campaign, hindered))
            self.quota.require(self.quota.waiting(turn), len(chosen), "this refinement")
            before = events.newest(turn)
            _queue(turn, chosen, target, seconds)
            return Refined(
                Submitted(campaign.campaign_id, before),
                tuple(one.cell.cell_id for one in chosen),
                hindered | {_name(one.cell): one.why for one in beyond},
                sum(one.seconds or 0.0 for one in chosen),
            )

    def _refinable(self, session: Session, ref: str) -> tuple[tables.Campaign, list[CellRecord]]:
        """Return a campaign that the user may refine, as far as that alone tells. Raises `UsageError`."""
        campaign = records.find_campaign(session, ref)
        require_own(campaign, self.user)
        cells = records.cells_of(session, campaign.no)
        _require_ended(campaign, cells)
        return campaign, cells

    def _obstacle(
        self, cell: CellRecord, baselines: Baselines[CellRecord], present: AgentHello
    ) -> str | None:
        """Why no block can be added to a cell's result; None where it can."""
        # A block measures both arms: the baseline has to be what it was, too.
        pair = [cell]
        if stored_ratio(cell) is not None:
            baseline = baselines.of(cell)
            if baseline is None or baseline.measurement is None:
                return "its baseline has no result any more"
            pair.append(baseline)
        for one in pair:
            why = no_host((one,), present) or _changed(one, present)
            if why is not None:
                return why
        store = Store(self.home.store)
        if store.find(cell.model_sha256) is None and host_of_files(store, self.database) is None:
            return f"its model (sha256 {cell.model_sha256[:12]}) is not in the store {store.root} any more"
        return None


def _require_ended(campaign: tables.Campaign, cells: Sequence[CellRecord]) -> None:
    named = f"campaign {campaign.name} ({campaign.campaign_id})"
    if any(cell.imported is not None for cell in cells):
        raise UsageError(f"{named} was imported: this farm did not measure it, and has no blocks of it")
    if campaign.ended_at is None:
        raise UsageError(
            f"{named} has not ended; watch it: farm status --watch {campaign.campaign_id}, or end it: "
            f"farm cancel {campaign.campaign_id}, which keeps its results"
        )


def _changed(cell: CellRecord, present: AgentHello) -> str | None:
    """Describe the changes since a cell was measured, whose device is present; None without any."""
    now = Environments(present.devices).of(cell.device, cell.delegate_kind, cell.delegate_options)
    names = sorted(n for n in now.keys() | cell.environment.keys() if now.get(n) != cell.environment.get(n))
    if not names:
        return None
    changes = (f"{n} {cell.environment.get(n, '(none)')} then, {now.get(n, '(none)')} now" for n in names)
    return f"{cell.device} is not as it was: {'; '.join(changes)}"


def _name(cell: CellRecord) -> str:
    return f"{cell.model} on {cell.delegate}@{cell.device}"


def _cannot(campaign: tables.Campaign, left_out: Mapping[str, str]) -> str:
    name, why = next(iter(left_out.items()))
    more = "" if len(left_out) == 1 else f" (and {len(left_out) - 1} more)"
    return (
        f"no block can be added to campaign {campaign.name} ({campaign.campaign_id}); {name}: {why}{more}; "
        "farm submit --force measures anew"
    )


def _queue(turn: Turn, chosen: Sequence[Vague], target: float | None, seconds: float | None) -> None:
    """Put the cells back, so that the model with the vaguest one goes first."""
    now = utc_now()
    ends_at = None if seconds is None else now + timedelta(seconds=seconds)
    places = {model: place for place, model in enumerate(dict.fromkeys(one.cell.model for one in chosen))}
    cells = [(turn.cell(one.cell.cell_id), one.cell) for one in chosen]
    chosen_cells = [(cell, record) for cell, record in cells if cell.state == CellState.DONE]
    steering_requests.put_back(
        turn, [cell for cell, _ in chosen_cells], now, "refinement", "blocks are added to its result"
    )
    for cell, record in chosen_cells:
        # Graded results of this farm have both; imported campaigns were refused before.
        assert record.measurement is not None
        assert record.environment_id is not None
        earlier = Refinement(
            environment_id=record.environment_id,
            blocks=record.measurement.blocks,
            until_decided=target is None,
        )
        # Its own rank is stored before it changes, to be given back.
        cell.refines = Refining(earlier, target, cell.rank, ends_at).stored
        cell.rank += places[cell.model]
        waiting.start_clock(cell, now)
