"""Answers users and operators: results, progress, and why cells wait. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from agent.wire.messages import ProcessSamples
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.engine.sessions import Database
from orchestrator.db.read import (
    agents,
    device_states,
    events,
    open_cells,
    outputs,
    records,
    scheduler_state,
    waiting,
)
from orchestrator.db.read.outputs import Output
from orchestrator.endpoint.client import fetch_samples, host_of_files
from orchestrator.errors import FarmError
from orchestrator.farm.campaign_events import CampaignEvents
from orchestrator.farm.scheduler_status import broker_state, why_unscheduled
from orchestrator.policy.why import Why, explain
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.sources.store import Store

_SAMPLES: TypeAdapter[list[ProcessSamples]] = TypeAdapter(list[ProcessSamples])


@dataclass(frozen=True, slots=True)
class Overview:
    """A summary of the farm. `cells`: open cells by state, with `suspect` attempts and `paused` cells."""

    cells: Mapping[str, int]
    agents: tuple[agents.AgentState, ...]
    devices: Mapping[str, int]
    scheduler: str
    schedules: bool
    broker: str
    database: str
    suspect_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads the database, and raw samples from the store.

    A campaign is named by its id, the beginning of its id, or its name; a cell by the beginning of its id.
    """

    home: FarmHome
    lab: LabConfig
    database: Database

    def campaigns(self) -> list[CampaignRecord]:
        """Every campaign, the one submitted last first."""
        with self.database.read() as session:
            return records.campaigns(session)

    def campaign(self, ref: str | None = None) -> CampaignRecord:
        """One campaign; None: the last. Raises `UsageError`."""
        with self.database.read() as session:
            return records.campaign_record(session, records.find_campaign(session, ref))

    def cells(self, campaign: str | None = None) -> list[CellRecord]:
        """The cells of a campaign (None: the last; `all`: every one), each with its newest counted result."""
        with self.database.read() as session:
            number = None if campaign == "all" else records.find_campaign(session, campaign).no
            return records.cells_of(session, number)

    def cell(self, prefix: str) -> CellRecord:
        """The cell whose id begins with `prefix`. Raises `UsageError` where none or several do."""
        with self.database.read() as session:
            return records.cells_by_id(session, [records.find_cell(session, prefix)])[0]

    def samples(self, cell: CellRecord) -> list[ProcessSamples]:
        """Raw samples of the result a cell shows, one entry per process; empty where it has none.

        In a lab, samples that are not on this machine are fetched from the server. Raises `FarmError` where
        the stored file is gone or damaged.
        """
        measured = cell.measurement
        if measured is None or measured.samples_sha256 is None:
            return []
        store = Store(self.home.store)
        if store.find(measured.samples_sha256) is None and (host := self._host_of_files()):
            fetch_samples(self.home, self.lab, host, measured.samples_sha256)
        path = store.path(measured.samples_sha256)
        try:
            return _SAMPLES.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise FarmError(
                f"the samples of cell {cell.cell_id} in {path} cannot be read: {error}"
            ) from error

    def store(self) -> Store:
        """The farm's files. Raises `FarmError` where they are on another machine."""
        store = Store(self.home.store)
        if host := self._host_of_files():
            raise FarmError(
                f"the farm's files are in the store of {host}, not in {store.root}; run this there"
            )
        return store

    def overview(self) -> Overview:
        """The state of the farm."""
        now = utc_now()
        suspect = now - timedelta(seconds=self.lab.times.suspect_s)
        with self.database.read() as session:
            cells = open_cells.counts(session, suspect)
            known = tuple(agents.states(session))
            states = [d.state for d in device_states.device_states(session, now, self._silent_before(now))]
            state = scheduler_state.read(session)
        unscheduled = why_unscheduled(self.home, self.lab, state, now)
        return Overview(
            cells=cells,
            agents=known,
            devices={state: states.count(state) for state in dict.fromkeys(states)},
            scheduler=unscheduled or "running",
            schedules=not unscheduled,
            broker=broker_state(self.lab, state),
            database=self.database.name,
            suspect_s=self.lab.times.suspect_s,
        )

    def why(self, prefix: str) -> Why:
        """Explain why a cell waits, or how far it is. Raises `UsageError`."""
        now = utc_now()
        with self.database.read() as session:
            cell_id = records.find_cell(session, prefix)
            unscheduled = why_unscheduled(self.home, self.lab, scheduler_state.read(session), now)
            facts = waiting.cell_facts(session, cell_id, now, self._silent_before(now), unscheduled)
        return explain(facts, now)

    def waiting(self, ref: str, limit: int) -> list[tuple[str, Why]]:
        """The next cells of a campaign: model on delegate, and why each waits. Raises `UsageError`."""
        now = utc_now()
        silent = self._silent_before(now)
        with self.database.read() as session:
            unscheduled = why_unscheduled(self.home, self.lab, scheduler_state.read(session), now)
            number = records.find_campaign(session, ref).no or 0
            return [
                (what, explain(waiting.cell_facts(session, cell_id, now, silent, unscheduled), now))
                for cell_id, what in waiting.first_queued(session, number, limit)
            ]

    def history(self, prefix: str, after: int = 0) -> tuple[str, list[events.CellEvent]]:
        """A cell's id, and its events after number `after`. Raises `UsageError`."""
        with self.database.read() as session:
            cell_id = records.find_cell(session, prefix)
            return cell_id, events.of_cell(session, cell_id, after)

    def output(self, attempt_id: str) -> Output | None:
        """The end of what a running attempt's runner has written, as its agent reports it."""
        with self.database.read() as session:
            return outputs.of_attempt(session, attempt_id)

    def events(self, ref: str | None) -> tuple[str, CampaignEvents]:
        """A campaign's id, and its events from now on. Raises `UsageError`."""
        with self.database.read() as session:
            campaign = records.find_campaign(session, ref)
            since = events.newest(session)
        return campaign.campaign_id, CampaignEvents(self.database, campaign.no or 0, since)

    def devices(self) -> list[device_states.DeviceState]:
        """Every device that an agent ever reported, with what it does now."""
        now = utc_now()
        with self.database.read() as session:
            return device_states.device_states(session, now, self._silent_before(now))

    def agents(self) -> list[agents.AgentState]:
        """Every agent that ever connected, by name."""
        with self.database.read() as session:
            return agents.states(session)

    def _host_of_files(self) -> str | None:
        """The machine that has the farm's files; None: this one."""
        return host_of_files(Store(self.home.store), self.database) if self.lab.is_lab else None

    def _silent_before(self, now: datetime) -> datetime | None:
        """Agents without a sign of life since then are silent; None: the one agent is the scheduler's."""
        return now - timedelta(seconds=self.lab.times.suspect_s) if self.lab.is_lab else None
