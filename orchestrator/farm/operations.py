"""What users and operators ask of a farm that works: how it goes, why it waits, and to do otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.config.settings import FarmHome, LabConfig
from orchestrator.db.engine.session import Database
from orchestrator.db.read import insight, records
from orchestrator.db.write import agents, events, outputs, scheduler_state, steering_requests
from orchestrator.db.write.outputs import Output
from orchestrator.errors import UsageError
from orchestrator.farm.campaign_events import Feed
from orchestrator.manifest.campaign import HIGHEST_PRIORITY
from orchestrator.policy.why import Why, explain
from orchestrator.scheduling.lock import lock_holder


@dataclass(frozen=True, slots=True)
class Overview:
    """The farm at a glance. `cells`: open cells by state, with `suspect` attempts and `paused` cells."""

    cells: Mapping[str, int]
    agents: tuple[agents.AgentState, ...]
    devices: Mapping[str, int]
    scheduler: str
    schedules: bool
    broker: str
    database: str
    suspect_s: float


@dataclass(frozen=True, slots=True)
class Operations:
    """Works on the database alone: the scheduler obeys from there, in this process or elsewhere."""

    home: FarmHome
    lab: LabConfig
    database: Database

    def overview(self) -> Overview:
        """How the farm is."""
        now = _now()
        suspect = now - timedelta(seconds=self.lab.times.suspect_s)
        with self.database.read() as session:
            cells = insight.counts(session, suspect)
            known = tuple(agents.states(session))
            states = [d.state for d in insight.device_states(session, now, self._silent_before(now))]
            broker = self._broker(scheduler_state.read(session))
        unscheduled = self._unscheduled()
        return Overview(
            cells=cells,
            agents=known,
            devices={state: states.count(state) for state in dict.fromkeys(states)},
            scheduler=unscheduled or "running",
            schedules=not unscheduled,
            broker=broker,
            database=self.database.name,
            suspect_s=self.lab.times.suspect_s,
        )

    def why(self, prefix: str) -> Why:
        """Why a cell waits, or how it goes. Raises `UsageError`."""
        now = _now()
        with self.database.read() as session:
            cell_id = records.find_cell(session, prefix)
            facts = insight.cell_facts(session, cell_id, now, self._silent_before(now), self._unscheduled())
        return explain(facts, now)

    def waiting(self, ref: str, limit: int) -> list[tuple[str, Why]]:
        """The cells of a campaign that come next: model on delegate, why each waits. Raises `UsageError`."""
        now, unscheduled = _now(), self._unscheduled()
        silent = self._silent_before(now)
        with self.database.read() as session:
            number = records.find_campaign(session, ref).no or 0
            return [
                (what, explain(insight.cell_facts(session, cell_id, now, silent, unscheduled), now))
                for cell_id, what in insight.first_queued(session, number, limit)
            ]

    def history(self, prefix: str, after: int = 0) -> tuple[str, list[insight.Moment]]:
        """A cell's id, and what happened to it after moment number `after`. Raises `UsageError`."""
        with self.database.read() as session:
            cell_id = records.find_cell(session, prefix)
            return cell_id, insight.history(session, cell_id, after)

    def output(self, attempt_id: str) -> Output | None:
        """The last of what the runner of an attempt under way has written, as its agent tells it."""
        with self.database.read() as session:
            return outputs.of_attempt(session, attempt_id)

    def feed(self, ref: str | None) -> tuple[str, Feed]:
        """A campaign's id, and its feed from now on. Raises `UsageError`."""
        with self.database.read() as session:
            campaign = records.find_campaign(session, ref)
            return campaign.campaign_id, Feed(self.database, campaign.no or 0, events.newest(session))

    def pause(self, ref: str) -> int:
        """Let nothing of a campaign start. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as session:
            return steering_requests.pause(session, ref, _now())

    def resume(self, ref: str) -> int:
        """Let a paused campaign go on. Returns how many cells wait. Raises `UsageError`."""
        with self.database.write() as session:
            return steering_requests.resume(session, ref)

    def prioritise(self, ref: str, priority: int) -> int:
        """Give a campaign or cell another priority. Returns how many open cells. Raises `UsageError`."""
        if abs(priority) > HIGHEST_PRIORITY:
            raise UsageError(f"a priority is between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}")
        with self.database.write() as session:
            return steering_requests.prioritise(session, ref, priority)

    def retry(self, ref: str, *, failed_only: bool) -> int:
        """Put ended cells back in line. Returns how many. Raises `UsageError`."""
        with self.database.write() as session:
            return steering_requests.retry(session, ref, _now(), failed_only=failed_only)

    def devices(self) -> list[insight.DeviceState]:
        """Every device that was ever named, with what it does now."""
        now = _now()
        with self.database.read() as session:
            return insight.device_states(session, now, self._silent_before(now))

    def quarantine(self, name: str, why: str, *, check: bool = False) -> str:
        """Take a device out; `check`: until a health check passes. Returns its id. Raises `UsageError`."""
        with self.database.write() as session:
            return steering_requests.quarantine(session, name, why, _now(), check=check)

    def release(self, name: str) -> str:
        """Give a device cells again. Returns its id. Raises `UsageError`."""
        with self.database.write() as session:
            return steering_requests.release(session, name, _now())

    def cool_down(self, name: str, seconds: float) -> str:
        """How long a device rests after each attempt. Returns its id. Raises `UsageError`."""
        if not 0 <= seconds <= 3600:
            raise UsageError("a cool-down is between 0 and 3600 seconds")
        with self.database.write() as session:
            return steering_requests.cool_down(session, name, seconds)

    def _silent_before(self, now: datetime) -> datetime | None:
        """Agents that were not heard since are silent; None: the one agent comes with the scheduler."""
        return now - timedelta(seconds=self.lab.times.suspect_s) if self.lab.is_lab else None

    def _unscheduled(self) -> str:
        """Why nobody gives cells to devices now; empty where somebody does."""
        if not self.lab.is_lab:
            holder = lock_holder(self.home.scheduler_lock)
            return "" if holder is not None else "nothing runs now: `farm submit` schedules while it waits"
        with self.database.read() as session:
            state = scheduler_state.read(session)
        if state is None:
            return "no scheduler has run yet; start one: farm serve"
        if state.broker == scheduler_state.STOPPED:
            return f"the scheduler on {state.host} was stopped; start it: farm serve"
        silence_s = (_now() - state.beat_at).total_seconds()
        if silence_s > self.lab.times.suspect_s:
            return f"the scheduler on {state.host} was last well {silence_s:.0f} s ago; start it: farm serve"
        return ""

    def _broker(self, state: scheduler_state.SchedulerState | None) -> str:
        if not self.lab.is_lab:
            return scheduler_state.NO_BROKER
        if state is None:
            return "unknown: no scheduler has run yet"
        if state.broker == scheduler_state.STOPPED:
            return "unknown: nobody schedules"
        return f"{state.broker}: {state.broker_text}" if state.broker_text else state.broker


def _now() -> datetime:
    return datetime.now(UTC)
