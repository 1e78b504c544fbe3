"""`farm lab serve`: the scheduler of a lab in one foreground process."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from agent.wire.service_manager import ServiceManager
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome, make_folders
from orchestrator.config.lab import LabConfig
from orchestrator.db.campaigns import farm_state
from orchestrator.db.engine.sessions import Database
from orchestrator.dispatch.base import Dispatcher
from orchestrator.dispatch.lab import LabDispatcher
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.farm.opening import Farm
from orchestrator.farm.remote.calls import UsersFace
from orchestrator.maintenance.prune import collect_unnamed
from orchestrator.scheduling.lock import SchedulerLock, lock_holder
from orchestrator.scheduling.loop import SchedulerLoop
from orchestrator.sources import health_model
from orchestrator.sources.store import Store
from orchestrator.trust.credentials_service import CredentialsService
from orchestrator.trust.signing import AgentKeys, FarmSeal

if TYPE_CHECKING:
    from orchestrator.monitoring.metrics_page import MetricsPage

STEP_S: Final = 1.0
"""Seconds of one wait for messages. Chosen: SIGTERM takes effect within it; news ends the wait early."""

_HEARTBEAT_EVERY_S = 5.0
"""Seconds between two heartbeats in the database. Chosen: six fit into the silence after which `farm doctor`
reports the scheduler (30 s), so one slow transaction raises no alarm; more often only writes more.
"""

_RIGHTS_EVERY_S = 60.0
"""Seconds between two writes of the agents' users to the broker. Chosen: a Redis that restarted without its
users locks every agent out for at most this long.
"""

_COLLECT_EVERY_S = 300.0
"""Seconds between two looks for uploads that no campaign names. Chosen: short beside the hour that they may
stay; a look lists one small folder.
"""

_FIRST_PAUSE_S = 1.0
"""Seconds before the first new try when the database is unreachable; each further pause is twice as long, up
to `LabTimes.backoff_s`. Chosen: the end of a short outage is noticed at once.
"""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Server:
    """Schedules until `stopping` is true. Its whole state is in the database: it may be killed anytime."""

    home: FarmHome
    lab: LabConfig
    database: Database
    dispatcher: Dispatcher
    stopping: Callable[[], bool]
    credentials: CredentialsService
    endpoint: Callable[[], AbstractContextManager[None]] = nullcontext
    stored: Callable[[float], None] | None = None
    manager: ServiceManager = field(default_factory=ServiceManager)
    _state: farm_state.SchedulerState = field(init=False)
    _heartbeat_at_s: float = 0.0
    _rights_at_s: float = 0.0
    _collect_at_s: float = 0.0
    _pause_s: float = _FIRST_PAUSE_S
    _outage: str = ""

    def __post_init__(self) -> None:
        now, store = utc_now(), Store(self.home.store).identity()
        self._state = farm_state.SchedulerState(
            socket.gethostname(), os.getpid(), now, now, farm_state.BROKER_DOWN, "", store
        )

    def run(self, lock: SchedulerLock) -> None:
        """Schedule while the lock is held. Raises `FarmError` where another process has taken it over."""
        with self.endpoint():
            health_model.provide(Store(self.home.store))
            log.info("scheduling on %s; agents come through the broker", self.database.name)
            service = SchedulerLoop(
                self.database,
                self.dispatcher,
                self.lab.times,
                self.stored,
                self.lab.reference_agents,
                self.lab.recovery,
            )
            self.manager.ready(f"scheduling on {self.database.name}")
            while not self.stopping():
                self.manager.alive()
                try:
                    self._beat(lock)
                    service.listen(STEP_S)
                except UnreachableError as error:
                    self._wait(str(error))
                else:
                    self._recovered()
            self.manager.stopping()
            try:
                # Recorded, so that nobody takes a scheduler that was stopped for one that fell silent.
                service.stop()
                self._record(
                    replace(self._state, beat_at=utc_now(), broker=farm_state.STOPPED, broker_text="")
                )
            except UnreachableError as error:
                log.warning("stopped without the database: %s", error)
        log.info("stopped; agents finish the attempts that they have")

    def _beat(self, lock: SchedulerLock) -> None:
        """Record a heartbeat, and make sure that no other process has taken over."""
        fault = self.dispatcher.fault
        broker = farm_state.BROKER_DOWN if fault else farm_state.BROKER_UP
        # A change of the broker is recorded at once, whenever the next heartbeat is due.
        if time.monotonic() < self._heartbeat_at_s and broker == self._state.broker:
            return
        # PostgreSQL frees the lock with a lost connection, and another `farm lab serve` may have taken it.
        if not lock.renew(self.database):
            raise FarmError(f"another process took over the scheduling for {self.database.name}")
        self._heartbeat_at_s = time.monotonic() + _HEARTBEAT_EVERY_S
        if broker == farm_state.BROKER_UP and time.monotonic() > self._rights_at_s:
            self._rights_at_s = time.monotonic() + _RIGHTS_EVERY_S
            self.credentials.apply_rights()
        state = replace(self._state, beat_at=utc_now(), broker=broker, broker_text=fault)
        self._record(state)
        if time.monotonic() > self._collect_at_s:
            self._collect_at_s = time.monotonic() + _COLLECT_EVERY_S
            collect_unnamed(self.database, Store(self.home.store), utc_now())

    def _record(self, state: farm_state.SchedulerState) -> None:
        with self.database.write() as turn:
            farm_state.write_scheduler(turn, state)
        self._state = state

    def _wait(self, why: str) -> None:
        if not self._outage:
            # Once for each outage, however many tries it takes.
            log.error("%s; trying again until it is back", why)
            self.manager.status(f"waiting: {why}")
        self._outage = why
        until = time.monotonic() + self._pause_s
        self._pause_s = min(self.lab.times.backoff_s, 2 * self._pause_s)
        while not self.stopping() and time.monotonic() < until:
            # A database that is away is not cured by a new scheduler.
            self.manager.alive()
            # In short steps: a stop takes effect within one.
            time.sleep(0.1)

    def _recovered(self) -> None:
        if self._outage:
            log.warning("recovered from: %s", self._outage)
            self.manager.status(f"scheduling on {self.database.name}")
        self._outage = ""
        self._pause_s = _FIRST_PAUSE_S


def serve_lab(home: FarmHome, lab: LabConfig, stopping: Callable[[], bool]) -> None:
    """Schedule for the lab until `stopping` is true. Raises `FarmError`."""
    if lab.broker_url is None:
        raise UsageError("a lab needs a broker: set FARM_BROKER_URL")
    if lab.recovery is not None:
        lab.recovery.require_usable()
    # The lock comes first: a second server must not answer anybody, nor upgrade the first one's database.
    with _lock(home, lab) as lock, Farm.open(home, lab=lab, serving=True) as farm:
        credentials = CredentialsService.open(home, lab, farm.database)
        # Before anything listens: whom a restored backup made valid again must not get in for a moment.
        credentials.keep_revocations()
        credentials.warn_of_plaintext()
        agent_keys = AgentKeys(farm.database)
        seal = FarmSeal(credentials.key_folder.keys, agent_keys)
        metrics = _metrics(lab, farm)
        counters = None if metrics is None else metrics.counters
        dispatcher = LabDispatcher(
            lab.broker_url, lab.key_prefix, seal, lab.times, lab.broker_ca, credentials.apply_rights,
            None if counters is None else counters.note_round_trip,
        )  # fmt: skip
        Server(
            home, lab, farm.database, dispatcher, stopping, credentials,
            endpoint=partial(_endpoint, lab, credentials, UsersFace(farm), metrics),
            stored=None if counters is None else counters.note_stored,
            manager=ServiceManager.from_environment(),
        ).run(lock)  # fmt: skip
        # The newest envelope of each agent: after a restart, older ones are not accepted again.
        with suppress(UnreachableError):
            agent_keys.save()


@contextmanager
def _lock(home: FarmHome, lab: LabConfig) -> Iterator[SchedulerLock]:
    """Hold the lock of the lab's scheduler. Raises `FarmError` where another process has it."""
    make_folders(home)
    with closing(Database.connect(lab.database_url or home.database, home.root)) as database:
        lock = SchedulerLock.acquire(home.scheduler_lock, None, database)
        if lock is None:
            holder = lock_holder(home.scheduler_lock)
            who = f"process {holder.pid}" if holder else "a process on another machine"
            raise FarmError(f"{who} already schedules for {database.name}; stop it, or use it")
        with lock:
            yield lock


def _metrics(lab: LabConfig, farm: Farm) -> MetricsPage | None:
    """Return the endpoint's page for Prometheus, if there is an endpoint; from now on it counts."""
    if lab.address is None:
        return None
    from orchestrator.monitoring.metrics_page import MetricsPage  # noqa: PLC0415  # see `_endpoint`

    page = MetricsPage(farm.database, Store(farm.home.store), lab.limits, lab.times.suspect_s)
    farm.database.watchers.append(page.counters.note)
    return page


def _endpoint(
    lab: LabConfig, credentials: CredentialsService, face: UsersFace, metrics: MetricsPage | None
) -> AbstractContextManager[None]:
    """Open the HTTP endpoint, if the configuration names an address."""
    if lab.address is None:
        return nullcontext()
    from orchestrator.endpoint.server import answering  # noqa: PLC0415  # many labs need no web server

    return answering(credentials, lab.address, face, metrics)
