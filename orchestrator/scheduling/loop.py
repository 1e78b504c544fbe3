"""The scheduler at work: joins database, policy and dispatcher. `assign`, `listen`, and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from agent.wire import failpoint
from agent.wire.messages import CancelJob, ForAgent, JobResult, JobSpec, Reason, ReasonCode, Shutdown
from orchestrator.config.lab import LabTimes
from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.db.engine.session import Database
from orchestrator.db.queue import picking
from orchestrator.db.write import agents, attempts, campaigns, ingest, outbox, results, running_attempts
from orchestrator.dispatch.base import BrokerDownError, Dispatcher, DispatchEvent, MessageReceived
from orchestrator.errors import UnreachableError
from orchestrator.policy.assign import Assignment
from orchestrator.policy.fingerprint import fingerprint
from orchestrator.policy.lifecycle import IllegalMoveError
from orchestrator.policy.preview import reusable, reuse_limit
from orchestrator.scheduling.available_devices import Roster
from orchestrator.scheduling.inbox import Intake, Todo
from orchestrator.scheduling.lost_attempts import Reaper

RETURN_PATIENCE_S: Final = 5.0
"""How long a returned embedded agent has to speak of the attempts it had."""

log = logging.getLogger(__name__)


class Service:
    """Gives cells to devices, follows them, takes their results in. The caller holds the scheduler lock."""

    def __init__(self, database: Database, dispatcher: Dispatcher, times: LabTimes | None = None) -> None:
        """`times`: of a lab; None: the one embedded agent, whose death is noticed at once."""
        self._database = database
        self._dispatcher = dispatcher
        self._sole = dispatcher.sole_agent
        self._times = times or LabTimes()
        self._roster = Roster(None if self._sole else self._times.suspect_s)
        self._intake = Intake(
            roster=self._roster,
            sole=self._sole,
            patience_s=RETURN_PATIENCE_S if self._sole else self._times.patience_s,
            beat_every_s=self._times.heartbeat_s,
        )
        self._reaper = Reaper(database, self._times)
        self._cancelled: set[str] = set()
        self._sent: list[str] = []
        self._dismissed: set[str] = set()
        self._pending: Sequence[DispatchEvent] = ()
        self._sweep_at_s = 0.0

    def listen(self, timeout_s: float) -> None:
        """Wait for news at most `timeout_s` seconds, then do everything that is due.

        A sign of life without news does not end the waiting: while a cell is measured, this process
        wakes as seldom as it can. Raises `UnreachableError` where no agent can be had; every attempt has
        ended then.
        """
        until = time.monotonic() + timeout_s
        news = False
        while not news and (left_s := until - time.monotonic()) >= 0:
            self._pending = self._pending or self._heard(left_s)
            news = self._take(self._pending)
            self._pending = ()
        self._give_up_doubtful()
        if self._sole or time.monotonic() >= self._sweep_at_s:
            self._sweep_at_s = time.monotonic() + self._times.sweep_s
            self._sweep()

    def assign(self) -> None:
        """Fill every idle device. A cell that meanwhile has a result elsewhere reuses it."""
        now = _now()
        usable = self._roster.usable(now)
        if not usable or self._dispatcher.fault:
            return
        with self._database.read() as session:
            free = picking.idle(session)
            idle = [name for name in usable if name in free]
            waiting = picking.choose(session, idle, now)
        if not waiting:
            return
        with self._database.write() as session:
            jobs = self._fill(session, idle, now)
        self._publish(jobs)

    def stop(self) -> None:
        """End the work of this process.

        Embedded: the agent ends; attempts under way end `interrupted` and their cells wait again. In a lab
        the agents go on, and so do their attempts.
        """
        if not self._sole:
            self._take(self._pending)
            self._settle_sent()
            self._dispatcher.close()
            return
        now = _now()
        with self._database.write() as session:
            attempts.ask_to_stop(session, [a.attempt_id for a in attempts.live(session, now)])
        try:
            for event in self._dispatcher.close():
                if isinstance(event, MessageReceived) and isinstance(event.message, JobResult):
                    self._take([event])
        finally:
            text = "stopped before it was finished"
            self._give_up_all(Reason(code=ReasonCode.INTERRUPTED, text=text))

    def live_count(self) -> int:
        """Attempts under way."""
        with self._database.read() as session:
            return len(attempts.live(session, _now()))

    def _heard(self, timeout_s: float) -> Sequence[DispatchEvent]:
        try:
            return self._dispatcher.events(timeout_s)
        except UnreachableError as error:
            if self._sole:
                self._give_up_all(Reason(code=ReasonCode.AGENT_LOST, text=str(error)))
            raise

    def _take(self, events: Sequence[DispatchEvent]) -> bool:
        """Act on what came, in one transaction; one by one where something of it cannot be. True: news."""
        wanted = [event for event in events if self._intake.matters(event)]
        if not wanted:
            return False
        try:
            return self._commit(wanted)
        except (IllegalMoveError, SQLAlchemyError, ValueError, KeyError):
            if len(wanted) == 1:
                log.exception("a message is left aside: %.300r", wanted[0])
                return False
        news = [self._take([event]) for event in wanted]
        return any(news)

    def _commit(self, events: Sequence[DispatchEvent]) -> bool:
        """Store what came and, in a lab, give the freed devices their next cells, all or nothing; then send.

        The embedded scheduler works for one campaign: whether that goes on is seen before `assign`.
        """
        todo, now = Todo(), _now()
        with self._database.write() as session:
            self._intake.prepare(session, events)
            for event in events:
                self._intake.take(session, event, todo, now)
            if todo.greeted:
                self._roster.refresh(agents.members(session))
            jobs = []
            if not self._sole and not self._dispatcher.fault:
                jobs = self._fill(session, self._roster.beside(todo.freed, now), now)
            if self._sent:
                outbox.sent(session, self._sent)
        self._sent.clear()
        self._send_all(todo.replies)
        self._publish(jobs)
        if todo.republish:
            self._republish()
        return todo.news

    def _send_all(self, messages: Iterable[tuple[str, ForAgent]]) -> None:
        """Whatever is not sent is asked for again: a receipt by the repeated result, a job by the reaper."""
        for agent_id, message in messages:
            try:
                self._dispatcher.send(agent_id, message)
            except BrokerDownError as error:
                log.warning("%s", error)
                return

    def _publish(self, jobs: Iterable[tuple[str, JobSpec]]) -> None:
        """Send jobs that are in the outbox; what cannot be sent stays there."""
        for agent_id, job in jobs:
            failpoint.reached("orchestrator.before_publish")
            try:
                self._dispatcher.send(agent_id, job)
            except BrokerDownError as error:
                log.warning("%s", error)
                return
            failpoint.reached("orchestrator.after_publish")
            self._sent.append(job.attempt_id)

    def _republish(self) -> None:
        """Send everything that is owed, and again what was sent and not started."""
        with self._database.read() as session:
            jobs = {job.attempt_id: (agent_id, job) for agent_id, job in outbox.owed(session)}
            for agent_id, job in outbox.unstarted(session):
                jobs[job.attempt_id] = (agent_id, job)
        self._publish(jobs.values())

    def _settle_sent(self) -> None:
        if self._sent:
            with self._database.write() as session:
                outbox.sent(session, self._sent)
            self._sent.clear()

    def _give_up_doubtful(self) -> None:
        doubtful = self._intake.doubtful
        for attempt_id in [name for name, until in doubtful.items() if time.monotonic() >= until]:
            del doubtful[attempt_id]
            reason = Reason(
                code=ReasonCode.AGENT_LOST, text="the agent died and knows nothing of this attempt"
            )
            with self._database.write() as session:
                ingest.give_up(session, attempt_id, reason, _now())

    def _give_up_all(self, reason: Reason) -> None:
        with self._database.write() as session:
            now = _now()
            for attempt in attempts.live(session, now):
                ingest.give_up(session, attempt.attempt_id, reason, now)

    def _sweep(self) -> None:
        """What no message tells: the wishes of users and operators, silence, and time that is over."""
        self._settle_sent()
        self._obey_wishes()
        if self._sole:
            return
        now = _now()
        if heard := self._roster.unsaved(timedelta(seconds=self._times.heartbeat_s / 2)):
            with self._database.write() as session:
                agents.note_heard(session, heard)
        with self._database.read() as session:
            self._roster.refresh(agents.members(session))
            leaving = agents.leaving(session)
        if leaving:
            self._see_off(leaving, now)
        again = self._reaper.reap(now, broker_down=bool(self._dispatcher.fault))
        self._publish(again)
        self.assign()

    def _see_off(self, leaving: Mapping[str, str], now: datetime) -> None:
        """Nothing waits for a device whose agent drains or is removed; a removed agent is told to end."""
        with self._database.read() as session:
            gone = agents.devices_of(session, list(leaving))
            stranded = agents.stranded(session, gone)
        if stranded:
            with self._database.write() as session:
                agents.strand(session, gone, "its agent was drained or removed", now)
        removed = {name for name, state in leaving.items() if state == tables.AGENT_REMOVED}
        self._send_all((name, Shutdown()) for name in sorted(removed - self._dismissed))
        self._dismissed = removed

    def _obey_wishes(self) -> None:
        """Stop what a user cancelled, what nobody waits for, and what is long over its time."""
        now = _now()
        with self._database.read() as session:
            found = running_attempts.unwanted(session, now)
            agent_of = {a.attempt_id: running_attempts.agent_of(session, a.attempt_id) or "" for a in found}
        unwanted = [
            a
            for a in found
            if (a.cancel_asked or a.parked or a.stop_asked) and a.attempt_id not in self._cancelled
        ]
        parked = [a.attempt_id for a in unwanted if a.parked and not a.cancel_asked and not a.stop_asked]
        if parked:
            with self._database.write() as session:
                attempts.ask_to_stop(session, parked)
        self._cancelled &= {a.attempt_id for a in found}
        self._cancelled |= {a.attempt_id for a in unwanted}
        self._send_all((agent_of[a.attempt_id], CancelJob(attempt_id=a.attempt_id)) for a in unwanted)
        for attempt in found:
            if attempt.overdue and (self._sole or not self._reaper.in_grace(now)):
                self._send_all([(agent_of[attempt.attempt_id], CancelJob(attempt_id=attempt.attempt_id))])
                reason = Reason(code=ReasonCode.TIMEOUT, text="the agent did not end it at its time limit")
                with self._database.write() as session:
                    ingest.lose(session, attempt.attempt_id, reason, now)

    def _fill(self, session: Session, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
        """Begin attempts on these devices, as many as they take. Each is owed to its agent."""
        jobs: list[tuple[str, JobSpec]] = []
        while chosen := picking.choose(session, device_ids, now):
            begun = self._begin(session, chosen, now)
            jobs += begun
            if len(begun) == len(chosen):
                break
        outbox.add(session, jobs, now)
        return jobs

    def _begin(
        self, session: Session, chosen: Sequence[Assignment], now: datetime
    ) -> list[tuple[str, JobSpec]]:
        turn.load_cells(session, [assignment.cell_id for assignment in chosen])
        turn.load(session, tables.Device, [assignment.device_id for assignment in chosen])
        waiting = [
            assignment
            for assignment in chosen
            if attempts.still_waiting(session, turn.get_one(session, tables.Cell, assignment.cell_id))
        ]
        reused = _reuse(session, waiting, now)
        return [
            (self._roster.agent_of(assignment.device_id), attempts.begin(session, assignment, now))
            for assignment in waiting
            if assignment.cell_id not in reused
        ]


def _reuse(session: Session, waiting: Sequence[Assignment], now: datetime) -> set[str]:
    """Another campaign may have measured the same since these cells were submitted; ids of those that take
    its result over.
    """
    limits: dict[str, datetime] = {}
    prints: dict[str, str] = {}
    for assignment in waiting:
        cell = turn.get_one(session, tables.Cell, assignment.cell_id)
        device = turn.get_one(session, tables.Device, assignment.device_id)
        campaign = turn.get_one(session, tables.Campaign, cell.campaign_no)
        limit = reuse_limit(campaign.reuse, now)
        if limit is not None:
            limits[cell.cell_id] = limit
            series = results.ingredients(cell, assignment.device_id).series
            prints[cell.cell_id] = fingerprint(series, device.environment_id)
    known = results.known_by_fingerprint(session, set(prints.values()))
    reused = set()
    for cell_id, limit in limits.items():
        found = known.get(prints[cell_id])
        if found is not None and reusable(found, limit):
            cell = turn.get_one(session, tables.Cell, cell_id)
            campaigns.reuse_result(session, cell, found.attempt_id, now)
            reused.add(cell_id)
    return reused


def _now() -> datetime:
    return datetime.now(UTC)
