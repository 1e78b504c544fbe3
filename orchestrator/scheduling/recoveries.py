"""Gives up attempts that are lost, and recovers lost devices by the command of the operator."""

import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import IO, Final

from agent.wire.messages import JobSpec, Reason, ReasonCode
from orchestrator.config.child_environment import for_recovery
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabTimes
from orchestrator.config.recovery import Recovery
from orchestrator.db.cells import jobs, running_attempts
from orchestrator.db.devices import quarantine
from orchestrator.db.devices.quarantine import LostDevice
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.results.events import RecoveryOutcome

MOST_AT_ONCE: Final = 4
"""Commands that run at the same time. Chosen: a rack that lost its power is not switched on all at once;
fewer make the last machine wait longer.
"""

_TEXT_BYTES: Final = 300
"""Bytes of a command's output that are kept, from its end: the last line says what failed."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recoveries:
    """One command at a time for each agent. `look` is called by the loop's thread alone, and does something
    every `every_s` seconds.
    """

    database: Database
    recovery: Recovery
    every_s: float
    _due_s: float = 0.0
    _running: dict[str, LostDevice] = field(default_factory=dict)
    _ended: queue.SimpleQueue[tuple[LostDevice, RecoveryOutcome, str]] = field(
        default_factory=queue.SimpleQueue
    )

    def look(self, now: datetime, silent_before: datetime | None) -> None:
        """Store what ended and start what is due; see `quarantine.lost`. Raises `UnreachableError`."""
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self.every_s
        self._settle(now)
        with self.database.read() as session:
            found = quarantine.lost(session, silent_before, now)
        for lost in found:
            if lost.agent_id in self._running or len(self._running) >= MOST_AT_ONCE:
                continue
            # Stored first: a farm that is killed in between must not run it twice within the hour.
            with self.database.write() as turn:
                quarantine.begin(turn, lost, now)
            self._running[lost.agent_id] = lost
            program = self.recovery.command[0]
            log.warning("device %s is lost (%s): running %s", lost.device_id, lost.loss, program)
            # Where the farm stops meanwhile it goes on: a machine must not be left switched off.
            threading.Thread(target=self._run, args=(lost,), name="recovery", daemon=True).start()

    def _settle(self, now: datetime) -> None:
        # `get` never waits: this thread alone takes from the queue.
        while not self._ended.empty():
            ended = self._ended.get()
            lost, outcome, text = ended
            try:
                with self.database.write() as turn:
                    quarantine.end(turn, lost, outcome, text, now)
            except BaseException:
                # The next look stores it: the database may be away.
                self._ended.put(ended)
                raise
            del self._running[lost.agent_id]
            log.warning("recovery of device %s %s: %s", lost.device_id, outcome, text)

    def _run(self, lost: LostDevice) -> None:
        self._ended.put((lost, *run(self.recovery, lost)))


def run(recovery: Recovery, lost: LostDevice) -> tuple[RecoveryOutcome, str]:
    """Run the command with the device, its agent and the loss as its last arguments, until it ends.

    Returns the outcome and the end of what it printed. Its whole process group ends at the time limit.
    """
    try:
        # A file, not a pipe: who outlives the command could keep a pipe open, and its reader waiting.
        with tempfile.TemporaryFile() as output:
            return _run_into(output, recovery, lost)
    except OSError as error:
        return "failed", f"{recovery.command[0]} cannot be started: {error.strerror}"


def _run_into(output: IO[bytes], recovery: Recovery, lost: LostDevice) -> tuple[RecoveryOutcome, str]:
    process = subprocess.Popen(  # noqa: S603  # the operator's own program, and no shell
        [*recovery.command, lost.device_id, lost.agent_id, lost.loss],
        env=for_recovery(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        status = process.wait(recovery.limit_s)
    except subprocess.TimeoutExpired:
        # `start_new_session` gave the group the id of its first process.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timed_out", f"it took longer than {recovery.limit_s:g} s; {_end_of(output)}"
    return ("succeeded" if status == 0 else "failed"), f"exit code {status}; {_end_of(output)}"


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TEXT_BYTES))
    lines = output.read(_TEXT_BYTES).decode(errors="replace").split("\n")
    said = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    return "".join(character if character.isprintable() else " " for character in said).strip()


@dataclass(slots=True)
class Reaper:
    """Ends silent attempts. Silence counts only while this process could receive and store: from its start,
    and from the end of the last outage. No attempt is lost because the farm itself was away.
    """

    database: Database
    times: LabTimes
    _listening_since: datetime = field(default_factory=utc_now)
    _turn_at: datetime = field(default_factory=utc_now)
    _due_s: float = 0.0

    def note_turn(self, now: datetime, *, broker_down: bool) -> None:
        """Note whether messages were received and stored until now. Call it first in every turn."""
        # Else the database was away, this machine slept, or its clock was set.
        went_on = abs(now - self._turn_at) <= timedelta(seconds=self.times.suspect_s)
        self._turn_at = now
        if broker_down or not went_on:
            self._listening_since = now

    def in_grace(self, now: datetime) -> bool:
        """Whether agents may still be handing over what they kept during an outage, so that a late attempt
        cannot be told from one whose messages are on their way.
        """
        return now - self._listening_since < timedelta(seconds=self.times.patience_s)

    def silent_before(self, now: datetime) -> datetime | None:
        """Return what a lost attempt's last message lies before; None: not listening that long."""
        before = now - timedelta(seconds=self.times.lost_s)
        return None if self._listening_since > before else before

    def reap(self, now: datetime, *, broker_down: bool) -> list[tuple[str, JobSpec]]:
        """Give up attempts that were silent for too long. Returns jobs without any answer, to send again."""
        if broker_down or time.monotonic() < self._due_s:
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
                assignments.fail_left_behind(turn, attempt.attempt_id, now, sole=False)
