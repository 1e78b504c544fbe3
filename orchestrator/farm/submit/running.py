"""Follows a submitted campaign to its end: this process schedules it, or watches the one that does."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import records
from orchestrator.db.scheduling import ingest
from orchestrator.farm.local.database_wait import DatabaseWait
from orchestrator.farm.local.one_machine import OneMachine
from orchestrator.farm.submit.campaign_events import CampaignEvents, look
from orchestrator.farm.submit.submission import Submitted
from orchestrator.results.events import FarmEvent
from orchestrator.scheduling.lock import lock_holder
from orchestrator.scheduling.loop import SchedulerLoop
from orchestrator.sources import health_model
from orchestrator.sources.store import Store

STEP_S: Final = 1.0
"""Seconds between two looks for steering requests of other terminals while the agent reports nothing. Chosen:
a `farm cancel` that takes effect within a second, one small query a second while a cell is measured.
"""

_LOOK_EVERY_S: Final = 0.3
"""Seconds between two looks at a campaign that another process schedules: a display that feels immediate."""


@dataclass(frozen=True, slots=True)
class Running:
    """Runs campaigns. In a lab it only watches: `farm lab serve` schedules there."""

    lab: LabConfig
    database: Database
    machine: OneMachine

    def run(
        self,
        submitted: Submitted,
        on_event: Callable[[FarmEvent], None],
        wait: DatabaseWait = DatabaseWait(),  # noqa: B008  # it holds no state between its calls
    ) -> None:
        """Return when every cell of the campaign has ended; report what happens on the way.

        One process schedules; another that waits for its own campaign watches, and takes over where the
        first one ends. Ctrl-C (`KeyboardInterrupt`) stops the runner, stores the blocks that it has finished,
        leaves the campaign for later, and is raised again; a second one stores nothing more. In a lab this
        only watches, and the campaign continues. There a database that is away is waited for, with `wait`.
        Raises `UnreachableError` where no agent can be reached.
        """
        if self.lab.is_lab:
            self._watch(submitted, on_event, wait)
            return
        number = self._begin(submitted.campaign_id)
        news = CampaignEvents(partial(look, self.database, number), submitted.events_before)
        try:
            while news.emit(on_event):
                lock = self.machine.lock(number)
                if lock is None:
                    self._wait_for_other(number)
                    continue
                with lock:
                    self._schedule(number, news, on_event)
        except BaseException:
            # A second terminal may wait for the same campaign and schedule it now: then it is not parked.
            holder = lock_holder(self.machine.home.scheduler_lock)
            if holder is None or holder.campaign_no != number:
                self._park(number, True)
            raise

    def _watch(self, submitted: Submitted, on_event: Callable[[FarmEvent], None], wait: DatabaseWait) -> None:
        number = wait(lambda: self._begin(submitted.campaign_id))
        news = CampaignEvents(partial(look, self.database, number), submitted.events_before)
        while wait(lambda: news.emit(on_event)):
            time.sleep(_LOOK_EVERY_S)

    def _begin(self, campaign_id: str) -> int:
        with self.database.write() as turn:
            row = records.find_campaign(turn, campaign_id)
            row.parked = False
            # A row that is stored has a number; only its type allows None.
            return row.no or 0

    def _schedule(self, number: int, news: CampaignEvents, on_event: Callable[[FarmEvent], None]) -> None:
        """Be the scheduler until the campaign has ended and nothing runs."""
        health_model.provide(Store(self.machine.home.store))
        with self.database.write() as turn:
            # Under the lock nobody else schedules: open attempts were left by a process that was killed.
            ingest.recover(turn, utc_now())
            # Whoever still waits for one of these takes it out again (`_wait_for_other`).
            campaigns.park_others(turn, number)
        service = SchedulerLoop(self.database, self.machine.start_agent())
        try:
            while news.emit(on_event):
                service.assign()
                service.listen(STEP_S)
            # Another campaign's attempt may still be under way: stopping now would waste its measurement.
            while service.live_count():
                service.listen(STEP_S)
        finally:
            service.stop()

    def _wait_for_other(self, number: int) -> None:
        """Let the process that schedules know that this one waits for the campaign."""
        with self.database.read() as session:
            parked = session.get_one(tables.Campaign, number).parked
        if parked:
            self._park(number, False)
        time.sleep(_LOOK_EVERY_S)

    def _park(self, number: int, parked: bool) -> None:
        with self.database.write() as turn:
            campaigns.park(turn, number, parked)
