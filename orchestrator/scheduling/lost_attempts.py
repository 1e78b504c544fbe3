"""Declares attempts lost that sent no message for too long, by the server's clock alone."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agent.wire.messages import JobSpec, Reason, ReasonCode
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabTimes
from orchestrator.db.cells import jobs, running_attempts
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reaper:
    """Ends silent attempts. Silence counts only while this process could receive: from its start, and from
    the end of the last outage of the broker. No attempt is lost because the farm itself was away.
    """

    database: Database
    times: LabTimes
    _listening_since: datetime = field(default_factory=utc_now)
    _due_s: float = 0.0

    def in_grace(self, now: datetime) -> bool:
        """Whether agents may still be handing over what they kept during an outage, so that a late attempt
        cannot be told from one whose messages are on their way.
        """
        return now - self._listening_since < timedelta(seconds=self.times.patience_s)

    def silent_before(self, now: datetime) -> datetime | None:
        """Return the time before which the last message of a lost attempt lies; None: this process has not
        listened for so long.
        """
        before = now - timedelta(seconds=self.times.lost_s)
        return None if self._listening_since > before else before

    def reap(self, now: datetime, *, broker_down: bool) -> list[tuple[str, JobSpec]]:
        """Give up attempts that were silent for too long. Returns jobs without any answer, to send again."""
        if broker_down:
            self._listening_since = now
            return []
        if time.monotonic() < self._due_s:
            return []
        self._due_s = time.monotonic() + self.times.reaper_s
        self._lose_silent(now)
        if now - self._listening_since < timedelta(seconds=self.times.resend_s):
            return []
        with self.database.read() as session:
            return jobs.unstarted(session, before=now - timedelta(seconds=self.times.resend_s))

    def _lose_silent(self, now: datetime) -> None:
        before = self.silent_before(now)
        if before is None:
            return
        with self.database.read() as session:
            found = running_attempts.silent(session, before)
        for attempt in found:
            text = f"agent {attempt.agent_id} sent no message about it for {self.times.lost_s:.0f} s"
            log.warning("attempt %s is lost: %s", attempt.attempt_id, text)
            # One transaction each: another writer, or an agent's late result, may come between.
            with self.database.write() as turn:
                reason = Reason(code=ReasonCode.AGENT_LOST, text=text)
                ingest.lose(turn, attempt.attempt_id, reason, now)
