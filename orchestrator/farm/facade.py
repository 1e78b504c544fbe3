"""The farm as the command line and the site use it: submit, run, look, cancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError
from sqlmodel import Session

from agent.wire.messages import AgentHello, Device, ProcessSamples
from orchestrator.config.filesystem import NETWORK_FILESYSTEMS, filesystem_of
from orchestrator.config.settings import FarmHome, LabConfig
from orchestrator.db import tables
from orchestrator.db.engine.session import Database
from orchestrator.db.migrate import migrate
from orchestrator.db.read import records
from orchestrator.db.write import (
    agents,
    attempts,
    campaigns,
    devices,
    events,
    ingest,
    running_attempts,
    scheduler_state,
)
from orchestrator.db.write.agents import AgentState
from orchestrator.db.write.results import past_results
from orchestrator.dispatch.base import MessageReceived
from orchestrator.dispatch.embedded import EmbeddedDispatcher, agent_command
from orchestrator.doctor.check import Check
from orchestrator.doctor.examine import examine
from orchestrator.endpoint.client import fetch_samples, host_of_files
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.farm.campaign_events import Feed
from orchestrator.farm.operations import Operations
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.matrix import ModelFile, expand
from orchestrator.policy.preview import NEVER, PlannedCell, plan_cells
from orchestrator.results.events import FarmEvent
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.scheduling.lock import SchedulerLock, lock_holder
from orchestrator.scheduling.loop import Service
from orchestrator.sources import health_model
from orchestrator.sources.store import Store

HELLO_LIMIT_S: Final = 120.0

STEP_S: Final = 1.0
"""How often wishes of other terminals are looked for while nothing else happens."""

_LOOK_EVERY_S = 0.3
_SAMPLES: TypeAdapter[list[ProcessSamples]] = TypeAdapter(list[ProcessSamples])


class Farm:
    """One farm home. Every method may be called from several processes at once."""

    def __init__(self, home: FarmHome, database: Database, command: Sequence[str], lab: LabConfig) -> None:
        """Use `Farm.open`."""
        self.home = home
        self.lab = lab
        self._database = database
        self._command = command
        self._hello: AgentHello | None = None
        self._since: dict[str, int] = {}

    @classmethod
    def open(
        cls,
        home: FarmHome,
        *,
        lab: LabConfig | None = None,
        serving: bool = False,
        command: Sequence[str] | None = None,
    ) -> Farm:
        """Create the folders, bring the database up to date, and clean up after a killed scheduler.

        The database of a lab is brought up to date by the process that is `serving` alone.
        `lab`: its database and broker; None: one machine. `command` starts another embedded agent than
        this package's own. Raises `UnreachableError`.
        """
        lab = lab or LabConfig()
        try:
            for folder in (home.root, home.store, home.agent):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreachableError(
                f"the farm's folder {home.root} cannot be used: {error.strerror}; set FARM_HOME to another"
            ) from error
        if (kind := filesystem_of(home.root)) in NETWORK_FILESYSTEMS:
            raise UnreachableError(
                f"{home.root} lies on {kind}, where the database would break; set FARM_HOME to a local folder"
            )
        database = Database.connect(lab.database_url or home.database, home.root)
        try:
            migrate(database, upgrade=serving or not lab.is_lab)
            farm = cls(home, database, command or agent_command(home), lab)
            if not lab.is_lab:
                _require_no_lab(database)
                farm._recover()
        except BaseException:
            database.close()
            raise
        return farm

    @property
    def database(self) -> Database:
        """For the services that work on it."""
        return self._database

    @property
    def operations(self) -> Operations:
        """How it goes, why something waits, and to do otherwise."""
        return Operations(self.home, self.lab, self._database)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Farm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hello(self) -> AgentHello:
        """The agent and its devices, as a running scheduler recorded them or as an agent says now.

        In a lab: the devices of every agent together. Raises `UnreachableError` where no agent can be had.
        """
        if self.lab.is_lab:
            return self._lab_hello()
        until = time.monotonic() + HELLO_LIMIT_S
        while self._hello is None:
            lock = self._lock()
            if lock is not None:
                with lock:
                    self._hello = self._ask_agent()
                break
            self._hello = self._recorded_by_holder()
            if self._hello is None and time.monotonic() > until:
                raise UnreachableError(
                    f"another farm process holds {self.home.scheduler_lock} and has not said its devices for "
                    f"{HELLO_LIMIT_S:.0f} s; see `farm doctor`"
                )
            if self._hello is None:
                time.sleep(_LOOK_EVERY_S)
        return self._hello

    def devices(self) -> tuple[Device, ...]:
        """The devices there are now."""
        return self.hello().devices

    def preview(
        self, campaign: Campaign, models: Iterable[ModelFile], *, force: bool = False
    ) -> list[PlannedCell]:
        """What a submission would do with each cell. Raises `UsageError`."""
        hello = self.hello()
        specs = expand(campaign, models, hello.devices, hello.missing)
        ids = {device.device_id: device.environment_id for device in hello.devices}
        environments = {device.device_id: device.environment for device in hello.devices}
        with self._database.read() as session:
            past = past_results(session, specs, ids)
        reuse = NEVER if force else campaign.reuse
        return list(plan_cells(specs, environments, ids, past, reuse, _now()))

    def submit(self, campaign: Campaign, models: Iterable[ModelFile], *, force: bool = False) -> str:
        """Store a campaign with all its cells in one transaction, or find the unfinished one with the same
        content. Returns the campaign's id. Raises `UsageError` where there is no cell to store.
        """
        planned = self.preview(campaign, models, force=force)
        if all(cell.action == "excluded" for cell in planned):
            raise UsageError(f"campaign {campaign.name!r} has no cell: its rules exclude all {len(planned)}")
        reuse = NEVER if force else campaign.reuse
        content = campaigns.content_of(campaign, planned, reuse)
        now = _now()
        with self._database.write() as session:
            since = events.newest(session)
            known = campaigns.find_unfinished(session, content)
            if known is None:
                campaign_id = campaigns.add(session, campaign, planned, content, reuse, now)
            else:
                campaign_id = known.campaign_id
                campaigns.resume(session, known, now)
        self._since[campaign_id] = since
        return campaign_id

    def run(self, campaign_id: str, on_event: Callable[[FarmEvent], None]) -> None:
        """Return when every cell of the campaign has ended; tell what happens on the way.

        One process schedules; another that waits for its own campaign watches, and takes over where the
        first one ends. Ctrl-C (`KeyboardInterrupt`) stops the runner, leaves the campaign for later, and
        is raised again; in a lab this only watches, and the campaign goes on. Raises `UnreachableError`
        where no agent can be had.
        """
        number, since = self._begin_run(campaign_id)
        feed = Feed(self._database, number, since)
        if self.lab.is_lab:
            while feed.emit(on_event):
                time.sleep(_LOOK_EVERY_S)
            return
        try:
            while feed.emit(on_event):
                lock = self._lock(number)
                if lock is None:
                    self._wait_for_other(number)
                    continue
                with lock:
                    self._schedule(number, feed, on_event)
        except BaseException:
            holder = lock_holder(self.home.scheduler_lock)
            if holder is None or holder.campaign_no != number:
                self._park(number, True)
            raise

    def campaigns(self) -> list[CampaignRecord]:
        """Every campaign, the one submitted last first."""
        with self._database.read() as session:
            return records.campaigns(session)

    def campaign(self, ref: str | None = None) -> CampaignRecord:
        """A campaign by id, beginning of its id, or name; None: the last. Raises `UsageError`."""
        with self._database.read() as session:
            return records.campaign_record(session, records.find_campaign(session, ref))

    def cells(self, campaign: str | None = None) -> list[CellRecord]:
        """The cells of a campaign (None: the last; `all`: every one), each with its newest counted result."""
        with self._database.read() as session:
            number = None if campaign == "all" else records.find_campaign(session, campaign).no
            return records.cells_of(session, number)

    def cell(self, prefix: str) -> CellRecord:
        """The cell whose id begins so. Raises `UsageError` where none or several do."""
        with self._database.read() as session:
            return records.cells_by_id(session, [records.find_cell(session, prefix)])[0]

    def samples(self, cell: CellRecord) -> list[ProcessSamples]:
        """Raw samples of the result a cell shows, one entry per process; empty where it has none.

        In a lab what is not here comes from the server. Raises `FarmError` where the stored file is gone or
        damaged.
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

    def _host_of_files(self) -> str | None:
        """The machine that has the farm's files; None: this one."""
        return host_of_files(Store(self.home.store), self._database) if self.lab.is_lab else None

    def cancel(self, ref: str) -> int:
        """Cancel a campaign (id, beginning of it, or name) or a cell (beginning of its id).

        Waiting cells end at once, running ones within moments; finished ones stay. Returns how many cells
        it concerns. Raises `UsageError`.
        """
        now = _now()
        with self._database.write() as session:
            found = records.campaign_rows(session, ref)
            if not found:
                cell = session.get_one(tables.Cell, records.find_cell(session, ref, "campaign or cell"))
                return campaigns.cancel_cells(session, [cell], now)
            return campaigns.cancel_campaign(session, records.find_campaign(session, ref), now)

    def agents(self) -> list[AgentState]:
        """Every agent that ever said hello, by name."""
        with self._database.read() as session:
            return agents.states(session)

    def drain_agent(self, name: str) -> int:
        """Give an agent no more work. Returns how many waiting cells could run nowhere else and have ended.

        Raises `UsageError` for a name that no agent has.
        """
        return self._see_off(name, tables.AGENT_DRAINING, f"agent {name} is being drained")

    def remove_agent(self, name: str) -> int:
        """Take an agent out; its attempts are stopped and returned. As `drain_agent` otherwise."""
        return self._see_off(name, tables.AGENT_REMOVED, f"agent {name} was removed")

    def resume_agent(self, name: str) -> int:
        """Let a draining or removed agent have work again; 0. Raises `UsageError`."""
        with self._database.write() as session:
            self._set_agent(session, name, tables.AGENT_ACTIVE)
        return 0

    def _see_off(self, name: str, state: str, why: str) -> int:
        now = _now()
        with self._database.write() as session:
            self._set_agent(session, name, state)
            if state == tables.AGENT_REMOVED:
                attempts.ask_to_stop(session, running_attempts.of_agent(session, name))
            return agents.strand(session, agents.devices_of(session, [name]), why, now)

    def _set_agent(self, session: Session, name: str, state: str) -> None:
        if not agents.set_state(session, name, state):
            known = ", ".join(entry.agent_id for entry in agents.states(session)) or "none"
            raise UsageError(f"no agent {name!r}; known: {known}")

    def doctor(self) -> list[Check]:
        """Every part of the farm with what was found and, where it is bad, the fix."""
        return examine(self.home, self._database, self.hello, self.lab)

    def _lab_hello(self) -> AgentHello:
        with self._database.read() as session:
            hello = devices.lab_hello(session)
        if not hello.devices:
            raise UnreachableError(
                "no agent of this lab has said its devices; start one on a lab machine: farm-agent start"
            )
        return hello

    def _recover(self) -> None:
        """End what a killed scheduler left open; nothing where one is alive."""
        lock = self._lock()
        if lock is None:
            return
        with lock:
            with self._database.read() as session:
                left = attempts.live(session, _now())
            if left:
                with self._database.write() as session:
                    ingest.recover(session, _now())

    def _lock(self, campaign_no: int | None = None) -> SchedulerLock | None:
        try:
            return SchedulerLock.acquire(self.home.scheduler_lock, campaign_no, self._database)
        except OSError as error:
            raise UnreachableError(
                f"cannot lock {self.home.scheduler_lock}: {error.strerror}; set FARM_HOME to a local disk"
            ) from error

    def _dispatcher(self) -> EmbeddedDispatcher:
        return EmbeddedDispatcher(self._command, self._agent_log)

    @property
    def _agent_log(self) -> Path:
        return self.home.agent / "agent.log"

    def _ask_agent(self) -> AgentHello:
        dispatcher = self._dispatcher()
        try:
            until = time.monotonic() + HELLO_LIMIT_S
            while time.monotonic() < until:
                for event in dispatcher.events(STEP_S):
                    if isinstance(event, MessageReceived) and isinstance(event.message, AgentHello):
                        with self._database.write() as session:
                            devices.record_hello(session, event.message, _now(), sole=True)
                        return event.message
        finally:
            dispatcher.close(grace_s=5.0)
        raise UnreachableError(f"the agent said nothing for {HELLO_LIMIT_S:.0f} s; see {self._agent_log}")

    def _recorded_by_holder(self) -> AgentHello | None:
        """What the process that schedules now has recorded, once it has."""
        holder = lock_holder(self.home.scheduler_lock)
        if holder is None:
            return None
        with self._database.read() as session:
            recorded = devices.recorded_hello(session)
        if recorded is None or recorded.seen_at.timestamp() < holder.since_at:
            return None
        return recorded.hello

    def _begin_run(self, campaign_id: str) -> tuple[int, int]:
        with self._database.write() as session:
            row = records.find_campaign(session, campaign_id)
            row.parked = False
            return row.no or 0, self._since.pop(row.campaign_id, events.newest(session))

    def _schedule(self, number: int, feed: Feed, on_event: Callable[[FarmEvent], None]) -> None:
        """Be the scheduler until the campaign has ended and nothing runs."""
        health_model.provide(Store(self.home.store))
        with self._database.write() as session:
            ingest.recover(session, _now())
            campaigns.park_others(session, number)
        service = Service(self._database, self._dispatcher())
        try:
            while feed.emit(on_event):
                service.assign()
                service.listen(STEP_S)
            while service.live_count():
                service.listen(STEP_S)
        finally:
            service.stop()

    def _wait_for_other(self, number: int) -> None:
        """Another process schedules: see that it knows somebody waits for this campaign."""
        with self._database.read() as session:
            parked = session.get_one(tables.Campaign, number).parked
        if parked:
            self._park(number, False)
        time.sleep(_LOOK_EVERY_S)

    def _park(self, number: int, parked: bool) -> None:
        with self._database.write() as session:
            campaigns.park(session, number, parked)


def _require_no_lab(database: Database) -> None:
    """One machine must not schedule beside a lab. Raises `UsageError`."""
    with database.read() as session:
        state = scheduler_state.read(session)
    if state is not None:
        raise UsageError(
            f"{database.name} is the database of a lab, scheduled on {state.host}: set FARM_BROKER_URL as "
            "there; a farm of one machine has a database of its own"
        )


def _now() -> datetime:
    return datetime.now(UTC)
