"""Answers users and operators: results, progress, and why cells wait. Changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db import events
from orchestrator.db.campaigns import farm_state, manifests
from orchestrator.db.campaigns.farm_state import NO_BROKER, STOPPED, SchedulerState
from orchestrator.db.cells import running_attempts, waiting
from orchestrator.db.devices import agents
from orchestrator.db.devices import states as device_states
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.engine.sessions import Database, Session
from orchestrator.db.results import cell_words, compared_cells, records
from orchestrator.endpoint.client import fetch_samples, host_of_files
from orchestrator.errors import FarmError
from orchestrator.farm.reading.raw import RawFiles
from orchestrator.farm.submit.campaign_events import CampaignEvents, News, Seen, look
from orchestrator.policy.why import Why, explain
from orchestrator.results.records import CampaignRecord, CellGroup, CellRecord, ComparedCell, ManifestRecord
from orchestrator.scheduling.lock import lock_holder
from orchestrator.sources.store import Store
from runtime.model.facts import ModelFacts, model_facts
from runtime.model.reader import load_model


def why_unscheduled(home: FarmHome, lab: LabConfig, state: SchedulerState | None, now: datetime) -> str:
    """Why no scheduler gives cells to devices now; empty where one does. `state`: a lab's record."""
    if not lab.is_lab:
        holder = lock_holder(home.scheduler_lock)
        return "" if holder is not None else "no scheduler is running; `farm submit` schedules while it waits"
    if state is None:
        return "no scheduler has run yet; start one: farm lab serve"
    if state.broker == STOPPED:
        return f"the scheduler on {state.host} was stopped; start it: farm lab serve"
    silence_s = (now - state.beat_at).total_seconds()
    if silence_s > lab.times.suspect_s:
        return (
            f"the scheduler on {state.host}: last heartbeat {silence_s:.0f} s ago; start it: farm lab serve"
        )
    return ""


def broker_state(lab: LabConfig, state: SchedulerState | None) -> str:
    """Return the state of the broker as the scheduler has recorded it."""
    if not lab.is_lab:
        return NO_BROKER
    if state is None:
        return "unknown: no scheduler has run yet"
    if state.broker == STOPPED:
        return "unknown: no scheduler is running"
    return f"{state.broker}: {state.broker_text}" if state.broker_text else state.broker


CELLS_AT_A_TIME: Final = 200
"""Cells of a page. Chosen: one has 5 to 20 kB as JSON, so a page is a few MB; with smaller ones a large
campaign takes more requests.
"""

_EVENTS_AT_A_TIME: Final = 200
"""Events of one answer to a watcher elsewhere, for the same reason: each brings its cell."""

MOST_WAITING: Final = 100
"""The most cells of one look at what waits: each takes several queries. Chosen: more than a screen shows."""


@dataclass(frozen=True, slots=True)
class CellPage:
    """Some cells of a campaign, or of all, in their order. `more`: others follow."""

    cells: tuple[CellRecord, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """A summary of the farm. `cells`: open cells by state, with `suspect` attempts and `paused` cells."""

    cells: Mapping[str, int]
    agents: tuple[AgentState, ...]
    devices: Mapping[str, int]
    scheduler: str
    schedules: bool
    broker: str
    database: str
    suspect_s: float


@dataclass(frozen=True, slots=True)
class Reading(RawFiles):
    """Reads the database, and raw samples from the store.

    A campaign is named by its id, the beginning of its id, its name or a part of it; a cell by the beginning
    of its id or by words.
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

    def manifest(self, ref: str | None = None) -> ManifestRecord | None:
        """Return the file that a campaign was submitted with; None if none was kept. Raises `UsageError`."""
        with self.database.read() as session:
            return manifests.manifest(session, ref)

    def cells(self, campaign: str | None = None) -> list[CellRecord]:
        """Return a campaign's cells (None: the last; `all`: all), with the newest counted results."""
        with self.database.read() as session:
            return records.cells_of(session, _number(session, campaign))

    def compared(self, campaign: str | None, model: str | None = None) -> list[ComparedCell]:
        """Return the same cells, or one model's, with compared fields alone, fast. Raises `UsageError`."""
        with self.database.read() as session:
            number = records.find_campaign(session, campaign).no or 0
            return compared_cells.compared_cells(session, number, model)

    def groups(self) -> list[CellGroup]:
        """Return the cells of every campaign by model, as digests of what `compared` would return."""
        with self.database.read() as session:
            return compared_cells.cell_groups(session)

    def measurements(self, campaign: str | None) -> dict[str, str]:
        """Return the stored measurements that a campaign shows, by cell id, as JSON. Raises `UsageError`."""
        with self.database.read() as session:
            number = records.find_campaign(session, campaign).no or 0
            return compared_cells.stored_measurements(session, number)

    def page(self, campaign: str | None, skip: int) -> CellPage:
        """Return the same cells without the first `skip`, at most `CELLS_AT_A_TIME`. Raises `UsageError`."""
        with self.database.read() as session:
            names = records.cell_ids_of(session, _number(session, campaign))
            chosen = names[skip : skip + CELLS_AT_A_TIME]
            return CellPage(tuple(records.cells_by_id(session, chosen)), len(names) > skip + len(chosen))

    def cell(self, words: str) -> CellRecord:
        """Find the cell that words name: the beginning of its id, or parts of its names, with blanks between.

        Raises `UsageError` where none does, or several do.
        """
        with self.database.read() as session:
            return records.cells_by_id(session, [cell_words.find_cell_by(session, words)])[0]

    def model_facts(self, sha256: str) -> ModelFacts | None:
        """Return the facts in a model file's tables; None if it is not in this store, or is no model."""
        store = Store(self.home.store)
        try:
            found = store.find(sha256)
            return None if found is None else model_facts(load_model(store.path(sha256)), found.size_bytes)
        except (OSError, ValueError):
            # Pruned since it was found, or no model, or no sha256: pages and verbs do without its facts.
            return None

    def store(self) -> Store:
        """Return the farm's files. Raises `FarmError` if they are on another machine."""
        store = Store(self.home.store)
        if host := self._host_of_files():
            raise FarmError(
                f"the farm's files are in the store of {host}, not in {store.root}; run this there"
            )
        return store

    def overview(self) -> Overview:
        """Return the state of the farm."""
        now = utc_now()
        suspect = now - timedelta(seconds=self.lab.times.suspect_s)
        with self.database.read() as session:
            cells = farm_state.counts(session, suspect)
            known = tuple(agents.states(session))
            states = [d.state for d in device_states.device_states(session, now, self._silent_before(now))]
            state = farm_state.read_scheduler(session)
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

    def why(self, words: str) -> Why:
        """Explain why a cell waits, or how far it is; `words` as for `cell`. Raises `UsageError`."""
        now = utc_now()
        with self.database.read() as session:
            cell_id = cell_words.find_cell_by(session, words)
            unscheduled = why_unscheduled(self.home, self.lab, farm_state.read_scheduler(session), now)
            facts = waiting.cell_facts(session, cell_id, now, self._silent_before(now), unscheduled)
        return explain(facts, now)

    def waiting(self, ref: str, limit: int) -> list[tuple[str, Why]]:
        """Return the next cells of a campaign, at most `limit` or `MOST_WAITING`: model on delegate, and why
        each waits. Raises `UsageError`.
        """
        now = utc_now()
        silent = self._silent_before(now)
        with self.database.read() as session:
            unscheduled = why_unscheduled(self.home, self.lab, farm_state.read_scheduler(session), now)
            number = records.find_campaign(session, ref).no or 0
            return [
                (what, explain(waiting.cell_facts(session, cell_id, now, silent, unscheduled), now))
                for cell_id, what in waiting.first_queued(session, number, max(0, min(limit, MOST_WAITING)))
            ]

    def history(self, prefix: str, after: int = 0) -> tuple[str, list[events.CellEvent]]:
        """Return a cell's id, and its events after number `after`. Raises `UsageError`."""
        with self.database.read() as session:
            cell_id = records.find_cell(session, prefix)
            return cell_id, events.of_cell(session, cell_id, after)

    def output(self, attempt_id: str) -> running_attempts.Output | None:
        """Return the end of a running attempt's output, as its agent reports it."""
        with self.database.read() as session:
            return running_attempts.of_attempt(session, attempt_id)

    def events(self, ref: str | None) -> tuple[str, CampaignEvents]:
        """Return a campaign's id, and its events from now on. Raises `UsageError`."""
        campaign_id, since = self.begin(ref)
        return campaign_id, CampaignEvents(partial(self.news, campaign_id), since)

    def begin(self, ref: str | None) -> tuple[str, int]:
        """Return a campaign's id and the last event's number, to watch from there. Raises `UsageError`."""
        with self.database.read() as session:
            return records.find_campaign(session, ref).campaign_id, events.newest(session)

    def news(self, campaign_id: str, seen: Seen) -> News:
        """Events of a campaign since `seen`, as many as fit an answer. Raises `UsageError`."""
        with self.database.read() as session:
            number = records.find_campaign(session, campaign_id).no or 0
        # In a transaction of its own.
        return look(self.database, number, seen, _EVENTS_AT_A_TIME)

    def devices(self) -> list[device_states.DeviceState]:
        """Every device that an agent ever reported, with what it does now."""
        now = utc_now()
        with self.database.read() as session:
            return device_states.device_states(session, now, self._silent_before(now))

    def agents(self) -> list[AgentState]:
        """Every agent that ever connected, by name."""
        with self.database.read() as session:
            return agents.states(session)

    def _fetch(self, sha256: str) -> None:
        if host := self._host_of_files():
            fetch_samples(self.home, self.lab, host, sha256)

    def _host_of_files(self) -> str | None:
        """Return the machine that has the farm's files; None: this one."""
        return host_of_files(Store(self.home.store), self.database) if self.lab.is_lab else None

    def _silent_before(self, now: datetime) -> datetime | None:
        """Agents without a sign of life since then are silent; None: the one agent is the scheduler's."""
        return now - timedelta(seconds=self.lab.times.suspect_s) if self.lab.is_lab else None


def _number(session: Session, campaign: str | None) -> int | None:
    return None if campaign == "all" else records.find_campaign(session, campaign).no
