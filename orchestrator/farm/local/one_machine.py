"""Scheduling on one machine: the lock of the process that schedules, and the agent that it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.db.campaigns import scheduler_state
from orchestrator.db.cells import running_attempts
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.dispatch.embedded import EmbeddedDispatcher
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.scheduling.lock import SchedulerLock


@dataclass(frozen=True, slots=True)
class OneMachine:
    """The lock and the agent of a farm of one machine. `command` starts the embedded agent."""

    home: FarmHome
    database: Database
    command: Sequence[str]

    @property
    def agent_log(self) -> Path:
        """The file of the embedded agent's stderr."""
        return self.home.agent / "agent.log"

    def lock(self, campaign_no: int | None = None) -> SchedulerLock | None:
        """Take the right to schedule; None while another process has it. Raises `UnreachableError`."""
        try:
            return SchedulerLock.acquire(self.home.scheduler_lock, campaign_no, self.database)
        except OSError as error:
            raise UnreachableError(
                f"cannot lock {self.home.scheduler_lock}: {error.strerror}; set FARM_HOME to a local disk"
            ) from error

    def start_agent(self) -> EmbeddedDispatcher:
        """Start the agent; only the holder of the lock may. Raises `UnreachableError`."""
        return EmbeddedDispatcher(self.command, self.agent_log)

    def recover(self) -> None:
        """End the attempts that a killed scheduler left open; does nothing while a scheduler is alive."""
        lock = self.lock()
        if lock is None:
            return
        with lock:
            now = utc_now()
            with self.database.read() as session:
                left = running_attempts.running(session, now)
            # Opening a farm must not wait for another process's write where nothing is to be written.
            if left:
                with self.database.write() as turn:
                    ingest.recover(turn, now)

    def require_no_lab(self) -> None:
        """Raise `UsageError` for a lab's database: this machine must not schedule beside the lab."""
        with self.database.read() as session:
            state = scheduler_state.read(session)
        if state is not None:
            raise UsageError(
                f"{self.database.name} is the database of a lab, scheduled on {state.host}: "
                "set FARM_BROKER_URL as there; a farm of one machine has a database of its own"
            )
