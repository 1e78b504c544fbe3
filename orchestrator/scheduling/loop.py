"""The scheduler's loop, which joins database, policy and dispatcher: `assign` and `listen` in turn."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from agent.wire import failpoint
from agent.wire.messages import CancelJob, ForAgent, JobResult, JobSpec, Reason, ReasonCode, Shutdown
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import DEFAULT_REFERENCE_AGENTS, LabTimes
from orchestrator.config.recovery import Recovery
from orchestrator.db import tables
from orchestrator.db.cells import attempts, running_attempts, waiting
from orchestrator.db.cells import jobs as known_jobs
from orchestrator.db.devices import agents, quarantine
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.db.results.references import Message, with_references
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.dispatch.base import BrokerDownError, Dispatcher, DispatchEvent, MessageReceived
from orchestrator.errors import UnreachableError
from orchestrator.scheduling.available_devices import AvailableDevices
from orchestrator.scheduling.inbox import Inbox
from orchestrator.scheduling.recoveries import Reaper, Recoveries
from orchestrator.scheduling.refused_messages import RefusedMessages

RETURN_PATIENCE_S: Final = 5.0
"""How many seconds a returned embedded agent has to report the attempts it had. Chosen: it does so at once
after its hello; less than a busy machine's pauses would give up an attempt that runs.
"""

log = logging.getLogger(__name__)


class SchedulerLoop:
    """Gives cells to devices, follows them, stores their results. The caller holds the scheduler lock."""

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher,
        times: LabTimes | None = None,
        stored: Callable[[float], None] | None = None,
        reference_agents: int = DEFAULT_REFERENCE_AGENTS,
        recovery: Recovery | None = None,
    ) -> None:
        """Set up a loop. `times`: of a lab; None: the one embedded agent, whose death is noticed at once.
        `stored` is called with the seconds from receiving a batch of messages to their commit.
        `reference_agents`: how many must have made the same reference before others get it. `recovery`: of
        lost devices.
        """
        self._database = database
        self._dispatcher = dispatcher
        self._sole = dispatcher.sole_agent
        self._reference_agents = reference_agents
        self._times = times or LabTimes()
        self._available = AvailableDevices(None if self._sole else self._times.suspect_s)
        self._inbox = Inbox(
            available=self._available,
            sole=self._sole,
            patience_s=RETURN_PATIENCE_S if self._sole else self._times.patience_s,
            heartbeat_s=self._times.heartbeat_s,
        )
        self._reaper = Reaper(database, self._times)
        self._recoveries = None if recovery is None else Recoveries(database, recovery, self._times.reaper_s)
        self._refused_messages = RefusedMessages()
        self._cancelled: set[str] = set()
        self._sent: list[str] = []
        self._dismissed: set[str] = set()
        self._pending: Sequence[DispatchEvent] = ()
        self._received_s = 0.0
        self._stored = stored
        self._sweep_at_s = 0.0

    def listen(self, timeout_s: float) -> None:
        """Wait for news at most `timeout_s` seconds, then do everything that is due.

        A sign of life without news does not end the waiting: while a cell is measured, this process
        wakes as seldom as it can. Raises `UnreachableError` where no agent can be started; every attempt
        has ended then.
        """
        until = time.monotonic() + timeout_s
        news = False
        while not news and (left_s := until - time.monotonic()) >= 0:
            # What the database could not store stays pending: the dispatcher would not deliver it again.
            if not self._pending:
                self._pending = self._receive(left_s)
                self._received_s = time.monotonic()
            news = self._apply(self._pending)
            if self._pending and self._stored is not None:
                self._stored(time.monotonic() - self._received_s)
            self._pending = ()
        self._give_up_doubtful()
        if self._sole or time.monotonic() >= self._sweep_at_s:
            self._sweep_at_s = time.monotonic() + self._times.sweep_s
            self._sweep()

    def assign(self) -> None:
        """Fill every idle device. A cell whose result another campaign has meanwhile reuses it."""
        now = utc_now()
        usable = self._available.usable(now)
        if not usable or self._dispatcher.fault:
            return
        # A read asks first: where nothing waits, no writer is held up.
        with self._database.read() as session:
            free = picking.idle(session)
            idle = [name for name in usable if name in free]
            chosen = picking.choose(session, idle, now)
        if not chosen:
            return
        with self._database.write() as turn:
            # Chosen anew, now that no other process writes: what was read above may be out of date.
            jobs = self._fill(turn, idle, now)
        self._publish(jobs)

    def stop(self) -> None:
        """End the work of this process.

        Embedded: the agent ends; attempts under way end with the blocks that they have finished, or
        `interrupted`, and their cells wait again. In a lab the agents go on, and so do their attempts.
        """
        if not self._sole:
            self._apply(self._pending)
            self._settle_sent()
            self._dispatcher.close()
            return
        now = utc_now()
        with self._database.write() as turn:
            # Stored before the agent is told: results of attempts that it cuts short are then no failures.
            attempts.ask_to_stop(turn, [a.attempt_id for a in running_attempts.running(turn, now)])
        try:
            # First what had come when the user interrupted its turn.
            for event in (*self._pending, *self._dispatcher.close()):
                # Nothing else matters now: what has no result is given up below.
                if isinstance(event, MessageReceived) and isinstance(event.message, JobResult):
                    self._apply([event])
        finally:
            text = "stopped before it was finished"
            self._give_up_all(Reason(code=ReasonCode.INTERRUPTED, text=text))

    def live_count(self) -> int:
        """Count the attempts under way."""
        with self._database.read() as session:
            return len(running_attempts.running(session, utc_now()))

    def _receive(self, timeout_s: float) -> Sequence[DispatchEvent]:
        try:
            return self._dispatcher.events(timeout_s)
        except UnreachableError as error:
            if self._sole:
                self._give_up_all(Reason(code=ReasonCode.AGENT_LOST, text=str(error)))
            raise

    def _apply(self, events: Sequence[DispatchEvent]) -> bool:
        """Apply events in one turn, or one by one where one of them cannot be applied. True: news.

        Raises `UnreachableError`: a database that is away refuses nothing.
        """
        wanted = [event for event in events if self._inbox.is_relevant(event)]
        if not wanted:
            return False
        try:
            return self._commit(wanted)
        except UnreachableError:
            self._inbox.forget_stored()
            raise
        except Exception as error:  # noqa: BLE001  # whatever a message holds, it must not stop the farm
            self._inbox.forget_stored()
            log.debug("%d messages cannot be applied together: %r", len(wanted), error)
        # The turn was rolled back as a whole: one message that cannot be applied must not hold up the others.
        # A list, of which `any` skips none: a generator would end with the first news.
        news = [self._apply_alone(event) for event in wanted]
        return any(news)

    def _apply_alone(self, event: DispatchEvent) -> bool:
        """Apply one event. A result that cannot be stored ends its attempt as failed, anything else is left
        aside; either is logged. True: news.
        """
        try:
            return self._commit([event], fill=False)
        except UnreachableError:
            raise
        except Exception as error:  # noqa: BLE001  # see `_apply`
            substitute = self._refused_messages.substitute(event, error)
        if substitute is None:
            return False
        try:
            return self._commit([substitute], fill=False)
        except UnreachableError:
            raise
        except Exception:
            log.exception("attempt %s cannot be ended", substitute.attempt_id)
            return False

    def _commit(self, events: Sequence[DispatchEvent], *, fill: bool = True) -> bool:
        """Store events and, in a lab, give freed devices their next cells, all or nothing; then send.

        The embedded scheduler works for one campaign; its caller checks before `assign` whether to go on.
        `fill`: give freed devices cells; otherwise the next sweep does.
        """
        now = utc_now()
        with self._database.write() as turn:
            follow_up = self._inbox.apply(turn, events, now)
            if follow_up.agents_changed:
                self._available.refresh(agents.members(turn))
            jobs = []
            # A fault in giving out cells must not look like one of the message.
            if fill and not self._sole:
                jobs = self._fill(turn, self._available.beside(follow_up.freed, now), now)
            # With the next turn that writes anyway: a job that is sent twice after a crash is refused by its
            # agent.
            if self._sent:
                known_jobs.remove(turn, self._sent)
        # Nothing is sent before the commit: after a receipt the agent deletes its copy; a job must be stored.
        self._sent.clear()
        self._send_all(follow_up.replies)
        self._publish(jobs)
        if follow_up.republish:
            self._republish()
        return follow_up.news

    def _fill(self, turn: Turn, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
        """Begin attempts on these devices, unless their jobs could not be sent."""
        return [] if self._dispatcher.fault else assignments.fill(turn, device_ids, now)

    def _send_all(self, messages: Iterable[tuple[str, ForAgent]]) -> None:
        """Send messages; failed ones go later: a receipt after the repeated result, a job by the reaper."""
        for agent_id, message in self._with_references(messages):
            try:
                self._dispatcher.send(agent_id, message)
            except BrokerDownError as error:
                log.warning("%s", error)
                return

    def _publish(self, jobs: Iterable[tuple[str, JobSpec]]) -> None:
        """Send jobs that are in the outbox; what cannot be sent stays there."""
        for agent_id, job in self._with_references(jobs):
            failpoint.reached("orchestrator.before_publish")
            try:
                self._dispatcher.send(agent_id, job)
            except BrokerDownError as error:
                log.warning("%s", error)
                return
            failpoint.reached("orchestrator.after_publish")
            self._sent.append(job.attempt_id)

    def _with_references(self, messages: Iterable[tuple[str, Message]]) -> Sequence[tuple[str, Message]]:
        """Add the known references to the jobs, late: an agent may just have made one."""
        listed = list(messages)
        if not any(isinstance(message, JobSpec) for _, message in listed):
            return listed
        with self._database.read() as session:
            return with_references(session, listed, self._reference_agents)

    def _republish(self) -> None:
        """Send the whole outbox, and send jobs again that were sent and not started."""
        with self._database.read() as session:
            # By attempt id: a job in the outbox has not been started either, and is sent once.
            jobs = {job.attempt_id: (agent_id, job) for agent_id, job in known_jobs.owed(session)}
            for agent_id, job in known_jobs.unstarted(session):
                jobs[job.attempt_id] = (agent_id, job)
        self._publish(jobs.values())

    def _settle_sent(self) -> None:
        if self._sent:
            with self._database.write() as turn:
                known_jobs.remove(turn, self._sent)
            self._sent.clear()

    def _give_up_doubtful(self) -> None:
        """End the attempts that their agent has not reported in time since its return."""
        in_doubt = self._inbox.in_doubt
        for attempt_id in [name for name, until in in_doubt.items() if time.monotonic() >= until]:
            del in_doubt[attempt_id]
            reason = Reason(
                code=ReasonCode.AGENT_LOST, text="the agent died and knows nothing of this attempt"
            )
            with self._database.write() as turn:
                now = utc_now()
                ingest.give_up(turn, attempt_id, reason, now)
                assignments.fail_left_behind(turn, attempt_id, now, sole=self._sole)

    def _give_up_all(self, reason: Reason) -> None:
        with self._database.write() as turn:
            now = utc_now()
            for attempt in running_attempts.running(turn, now):
                ingest.give_up(turn, attempt.attempt_id, reason, now)

    def _sweep(self) -> None:
        """Do the work that no message triggers: steering, silent attempts, and attempts over time."""
        self._reaper.note_turn(utc_now(), broker_down=bool(self._dispatcher.fault))
        self._settle_sent()
        self._apply_steering_requests()
        self._end_overdue_waiting()
        self._check_those_back()
        if self._sole:
            return
        now = utc_now()
        # Half the interval: a heartbeat that arrives a little early is stored as well.
        if heard := self._available.unsaved(timedelta(seconds=self._times.heartbeat_s / 2)):
            with self._database.write() as turn:
                agents.note_heard(turn, heard)
        with self._database.read() as session:
            self._available.refresh(agents.members(session))
            leaving = agents.leaving(session)
        if leaving:
            self._retire(leaving, now)
        again = self._reaper.reap(now, broker_down=bool(self._dispatcher.fault))
        self._publish(again)
        if self._recoveries is not None:
            self._recoveries.look(now, self._reaper.silent_before(now))
        self.assign()

    def _retire(self, leaving: Mapping[str, str], now: datetime) -> None:
        """End the cells that wait for agents that drain or are removed; send a removed agent its shutdown."""
        removed = {name for name, state in leaving.items() if state == tables.AGENT_REMOVED}
        with self._database.read() as session:
            gone = agents.devices_of(session, list(leaving))
            wanted = agents.are_waited_for(session, gone)
            # Once per removal, not once per sweep; an agent that was away gets it in reply to its next hello.
            # Not where it was revoked: it is to keep its results until it is enrolled again.
            dismissed = removed - self._dismissed
            if dismissed:
                dismissed -= agents.revoked(session, now)
        if wanted:
            with self._database.write() as turn:
                assignments.fail_unplaceable(turn, gone, "its agent was drained or removed", now)
        self._send_all((name, Shutdown()) for name in sorted(dismissed))
        self._dismissed = removed

    def _end_overdue_waiting(self) -> None:
        """End the cells that have waited as long as their campaign file allows."""
        now = utc_now()
        with self._database.read() as session:
            overdue = waiting.is_any_overdue(session, now)
        if overdue:
            with self._database.write() as turn:
                waiting.end_overdue(turn, now)

    def _check_those_back(self) -> None:
        """Have devices in quarantine checked whose checks ended while they were gone."""
        with self._database.read() as session:
            found = quarantine.unchecked(session)
        if found:
            with self._database.write() as turn:
                for device_id in found:
                    quarantine.ensure_check(turn, turn.device(device_id), utc_now())

    def _apply_steering_requests(self) -> None:
        """Stop attempts that a user cancelled, that no process waits for, or that are long over their time.

        A cancelled attempt ends by its agent's result; one that is overdue is given up as well, so that its
        device does not wait for an agent that cannot end it.
        """
        now = utc_now()
        with self._database.read() as session:
            found = running_attempts.unwanted(session, now)
        unwanted = [
            a
            for a in found
            if (a.cancel_asked or a.parked or a.stop_asked) and a.attempt_id not in self._cancelled
        ]
        parked = [a.attempt_id for a in unwanted if a.parked and not a.cancel_asked and not a.stop_asked]
        if parked:
            with self._database.write() as turn:
                attempts.ask_to_stop(turn, parked)
        # Asked once; a cancellation that is lost is repeated as the reply to the attempt's next heartbeat.
        self._cancelled &= {a.attempt_id for a in found}
        self._cancelled |= {a.attempt_id for a in unwanted}
        self._send_all((a.agent_id, CancelJob(attempt_id=a.attempt_id)) for a in unwanted)
        for attempt in found:
            if attempt.overdue and (self._sole or not self._reaper.in_grace(now)):
                self._send_all([(attempt.agent_id, CancelJob(attempt_id=attempt.attempt_id))])
                reason = Reason(code=ReasonCode.TIMEOUT, text="the agent did not end it at its time limit")
                with self._database.write() as turn:
                    ingest.lose(turn, attempt.attempt_id, reason, now)
                    assignments.fail_left_behind(turn, attempt.attempt_id, now, sole=self._sole)
