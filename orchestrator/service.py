"""The scheduler at work: joins database, policy and dispatcher. `assign`, `listen`, and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from sqlmodel import Session

from agent.messages import (
    AgentHello,
    Heartbeat,
    JobRefused,
    JobResult,
    JobSpec,
    JobStarted,
    Reason,
    ReasonCode,
)
from orchestrator import ingest
from orchestrator.db import attempts, campaigns, devices, results, tables
from orchestrator.db.session import Database
from orchestrator.dispatch.base import AgentLost, Dispatcher, DispatchEvent
from orchestrator.errors import UnreachableError
from orchestrator.fingerprint import fingerprint
from orchestrator.planning import reusable, reuse_limit
from orchestrator.scheduler import Assignment, assign

RETURN_PATIENCE_S: Final = 5.0
"""How long a returned agent has to speak of the attempts it had."""

_PHASE_EVERY_S = 2.0

log = logging.getLogger(__name__)


class Service:
    """Gives cells to devices, follows them, takes their results in. The caller holds the scheduler lock."""

    def __init__(self, database: Database, dispatcher: Dispatcher) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._devices: tuple[str, ...] = ()
        self._doubtful: dict[str, float] = {}
        self._phases: dict[str, tuple[str, float]] = {}
        self._cancelled: set[str] = set()

    def listen(self, timeout_s: float) -> None:
        """Wait for news at most `timeout_s` seconds, then do everything that is due.

        A sign of life without news does not end the waiting: while a cell is measured, this process
        wakes as seldom as it can. Raises `UnreachableError` where no agent can be had; every attempt has
        ended then.
        """
        until = time.monotonic() + timeout_s
        news = False
        while not news and (left_s := until - time.monotonic()) >= 0:
            for event in self._heard(left_s):
                news = self._take(event) or news
        self._give_up_doubtful()
        self._obey_wishes()

    def _heard(self, timeout_s: float) -> Sequence[DispatchEvent]:
        try:
            return self._dispatcher.events(timeout_s)
        except UnreachableError as error:
            self._give_up_all(Reason(code=ReasonCode.AGENT_LOST, text=str(error)))
            raise

    def assign(self) -> None:
        """Fill idle devices. A cell that meanwhile has a result elsewhere reuses it and the next is tried."""
        while self._devices:
            now = _now()
            with self._database.read() as session:
                slots = devices.slots(session, self._devices)
                idle = [slot.device_id for slot in slots if not slot.busy]
                waiting = attempts.waiting(session, idle, now) if idle else []
            chosen = assign(waiting, slots, now.timestamp())
            if not chosen:
                return
            for job in self._begin(chosen, now):
                self._dispatcher.offer(job)

    def stop(self) -> None:
        """End the agent; attempts under way end `interrupted` and their cells wait again."""
        now = _now()
        with self._database.write() as session:
            attempts.ask_to_stop(session, [live.attempt_id for live in attempts.live(session, now)])
        try:
            for event in self._dispatcher.close():
                if isinstance(event, JobResult):
                    self._ingest(event)
        finally:
            text = "stopped before it was finished"
            self._give_up_all(Reason(code=ReasonCode.INTERRUPTED, text=text))

    def live_count(self) -> int:
        """Attempts under way."""
        with self._database.read() as session:
            return len(attempts.live(session, _now()))

    def _take(self, event: DispatchEvent) -> bool:
        """Act on one event; False for a sign of life that says nothing new."""
        match event:
            case AgentHello():
                self._greet(event)
            case JobStarted():
                with self._database.write() as session:
                    attempts.started(session, event.attempt_id, event.epoch, _now())
            case Heartbeat():
                return self._note_phase(event)
            case JobRefused():
                with self._database.write() as session:
                    ingest.refuse(session, event, _now())
            case JobResult():
                self._ingest(event)
                self._dispatcher.receipt(event.attempt_id)
            case AgentLost():
                log.info("the agent is lost: %s", event.reason)
                self._devices = ()
        return True

    def _greet(self, hello: AgentHello) -> None:
        """A hello after a break: what was under way is in doubt until the agent speaks of it."""
        now = _now()
        ids = tuple(device.device_id for device in hello.devices)
        sole = self._dispatcher.sole_agent
        with self._database.write() as session:
            devices.record_hello(session, hello, now, sole=sole)
            if sole:
                hint = {entry.kind: entry.reason for entry in hello.missing}
                campaigns.drop_vanished(session, ids, hint, now)
            left = [a.attempt_id for a in attempts.live(session, now) if sole or a.device_id in ids]
        self._devices = ids
        self._doubtful = dict.fromkeys(left, time.monotonic() + RETURN_PATIENCE_S)

    def _ingest(self, message: JobResult) -> None:
        with self._database.write() as session:
            outcome = ingest.apply(session, message, _now())
        if outcome in ("conflict", "unknown"):
            log.warning("result of attempt %s: %s; it is not stored", message.attempt_id, outcome)
        self._doubtful.pop(message.attempt_id, None)
        self._phases.pop(message.attempt_id, None)
        self._cancelled.discard(message.attempt_id)

    def _note_phase(self, beat: Heartbeat) -> bool:
        """Store a new phase, not too often; False where nothing was stored."""
        self._doubtful.pop(beat.attempt_id, None)
        known, until = self._phases.get(beat.attempt_id, ("", 0.0))
        if beat.phase == known or time.monotonic() < until:
            return False
        self._phases[beat.attempt_id] = (beat.phase, time.monotonic() + _PHASE_EVERY_S)
        with self._database.write() as session:
            attempts.note_phase(session, beat.attempt_id, beat.epoch, beat.phase)
        return True

    def _give_up_doubtful(self) -> None:
        over = [name for name, until in self._doubtful.items() if time.monotonic() >= until]
        for attempt_id in over:
            del self._doubtful[attempt_id]
            reason = Reason(
                code=ReasonCode.AGENT_LOST, text="the agent died and knows nothing of this attempt"
            )
            with self._database.write() as session:
                ingest.give_up(session, attempt_id, reason, _now())

    def _give_up_all(self, reason: Reason) -> None:
        with self._database.write() as session:
            now = _now()
            for live in attempts.live(session, now):
                ingest.give_up(session, live.attempt_id, reason, now)

    def _obey_wishes(self) -> None:
        """Stop what a user cancelled, what nobody waits for, and what is long over its time."""
        with self._database.read() as session:
            live = attempts.live(session, _now())
        unwanted = [a for a in live if (a.cancel_asked or a.parked) and a.attempt_id not in self._cancelled]
        parked = [a.attempt_id for a in unwanted if not a.cancel_asked and not a.stop_asked]
        if parked:
            with self._database.write() as session:
                attempts.ask_to_stop(session, parked)
        for attempt in unwanted:
            self._cancelled.add(attempt.attempt_id)
            self._dispatcher.cancel(attempt.attempt_id)
        for attempt in live:
            if attempt.overdue:
                self._dispatcher.cancel(attempt.attempt_id)
                reason = Reason(code=ReasonCode.TIMEOUT, text="the agent did not end it at its time limit")
                with self._database.write() as session:
                    ingest.give_up(session, attempt.attempt_id, reason, _now())

    def _begin(self, chosen: Iterable[Assignment], now: datetime) -> list[JobSpec]:
        jobs = []
        with self._database.write() as session:
            for assignment in chosen:
                cell = session.get_one(tables.Cell, assignment.cell_id)
                if not attempts.still_waiting(session, cell) or _reuse(session, cell, assignment, now):
                    continue
                jobs.append(attempts.begin(session, assignment, now))
        return jobs


def _reuse(session: Session, cell: tables.Cell, assignment: Assignment, now: datetime) -> bool:
    """Another campaign may have measured the same since this cell was submitted."""
    campaign = session.get_one(tables.Campaign, cell.campaign_no)
    limit = reuse_limit(campaign.reuse, now)
    device = session.get_one(tables.Device, assignment.device_id)
    series = results.ingredients(cell, assignment.device_id).series
    known = results.known_by_fingerprint(session, fingerprint(series, device.environment_id))
    if limit is None or known is None or not reusable(known, limit):
        return False
    campaigns.reuse_result(session, cell, known.attempt_id, now)
    return True


def _now() -> datetime:
    return datetime.now(UTC)
