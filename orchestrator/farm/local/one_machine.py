"""The scheduling of one machine: the lock of the process that schedules, the agent that it starts, and the
devices that are present, as a running scheduler recorded them or as an agent reports them.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.messages import AgentHello
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.campaigns import farm_state
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.dispatch.base import MessageReceived
from orchestrator.dispatch.embedded import EmbeddedDispatcher
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.scheduling.lock import SchedulerLock, lock_holder


@dataclass(slots=True)
class OneMachine:
    """The lock and the agent of a farm of one machine. `command` starts the embedded agent.

    An agent that was asked for its devices may be kept, with the lock, for the scheduling that follows: it
    has listed them, which takes seconds.
    """

    home: FarmHome
    database: Database
    command: Sequence[str]
    _kept_lock: SchedulerLock | None = field(default=None, init=False)
    _kept_agent: EmbeddedDispatcher | None = field(default=None, init=False)

    @property
    def agent_log(self) -> Path:
        """The file of the embedded agent's stderr."""
        return self.home.agent / "agent.log"

    def lock(self, campaign_no: int | None = None) -> SchedulerLock | None:
        """Take the right to schedule, or a kept one; None while another has it. Raises `UnreachableError`."""
        if self._kept_lock is not None:
            kept, self._kept_lock = self._kept_lock, None
            # It was taken before there was a campaign; other processes read which one its holder waits for.
            kept.name(campaign_no)
            return kept
        try:
            return SchedulerLock.acquire(self.home.scheduler_lock, campaign_no, self.database)
        except OSError as error:
            raise UnreachableError(
                f"cannot lock {self.home.scheduler_lock}: {error.strerror}; set FARM_HOME to a local disk"
            ) from error

    def start_agent(self) -> EmbeddedDispatcher:
        """Start the agent, or go on with a kept one; the lock must be held. Raises `UnreachableError`."""
        if self._kept_agent is not None:
            kept, self._kept_agent = self._kept_agent, None
            return kept
        return EmbeddedDispatcher(self.command, self.agent_log)

    def keep(self, lock: SchedulerLock, agent: EmbeddedDispatcher) -> None:
        """Keep an agent that has no job, and the lock, for this process's `lock` and `start_agent`."""
        self._kept_lock, self._kept_agent = lock, agent

    def close(self) -> None:
        """End an agent that was kept and not needed, then let another process schedule."""
        if self._kept_agent is not None:
            kept, self._kept_agent = self._kept_agent, None
            kept.close(grace_s=_ASKED_GRACE_S)
        if self._kept_lock is not None:
            self._kept_lock.release()
            self._kept_lock = None

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
            state = farm_state.read_scheduler(session)
        if state is not None:
            raise UsageError(
                f"{self.database.name} is the database of a lab, scheduled on {state.host}: "
                "set FARM_BROKER_URL as there; a farm of one machine has a database of its own"
            )


HELLO_LIMIT_S: Final = 120.0
"""Seconds that an agent has from its start to its hello. Chosen: its two probes of the devices may take 20 s
each (`agent.devices.PROBE_TIMEOUT_S`), the rest is for a loaded host. Less refuses slow hosts; more only
delays the error about a stuck agent.
"""

_ASKED_GRACE_S: Final = 5.0
"""Seconds that an agent without a job has to end. Less kills one on a loaded host, which loses nothing."""

_LISTEN_S: Final = 1.0
"""Seconds of one wait for the agent's messages. A message ends it: it only bounds how late the limit acts."""

_LOOK_EVERY_S: Final = 0.3
"""Seconds between two looks at what the process that schedules has recorded: short for a person who waits."""


class PresentDevices:
    """The present devices. On one machine it asks once and remembers, so plan and display agree."""

    def __init__(self, lab: LabConfig, database: Database, machine: OneMachine) -> None:
        self._lab = lab
        self._database = database
        self._machine = machine
        self._hello: AgentHello | None = None

    def begin(self) -> None:
        """Start the agent of one machine, if this process may, so that it lists its devices before `hello`.

        Another process of this farm that asks for the devices waits until `hello` has them, so it must follow
        within seconds.
        """
        if self._lab.is_lab or self._hello is not None:
            return
        lock = self._machine.lock()
        if lock is not None:
            with ExitStack() as opened:
                opened.enter_context(lock)
                self._machine.keep(lock, self._machine.start_agent())
                opened.pop_all()

    def hello(self, *, keep: bool = False) -> AgentHello:
        """Return the agent and its devices; in a lab the devices of every agent together, asked anew each
        time.

        `keep`: this process is about to schedule, with the agent that it asks. Raises `UnreachableError`
        where no agent can be reached.
        """
        if self._lab.is_lab:
            return self._lab_hello()
        until = time.monotonic() + HELLO_LIMIT_S
        while self._hello is None:
            # Tried each time: the holder may end before it has recorded anything; then this process asks.
            lock = self._machine.lock()
            if lock is not None:
                self._hello = self._ask_agent(lock, keep=keep)
                break
            self._hello = self._recorded_by_holder()
            if self._hello is None and time.monotonic() > until:
                raise UnreachableError(
                    f"another farm process holds {self._machine.home.scheduler_lock} and has not reported "
                    f"its devices for {HELLO_LIMIT_S:.0f} s; see `farm doctor`"
                )
            if self._hello is None:
                time.sleep(_LOOK_EVERY_S)
        return self._hello

    def _lab_hello(self) -> AgentHello:
        with self._database.read() as session:
            hello = devices.lab_hello(session)
        if not hello.devices:
            raise UnreachableError(
                "no agent of this lab has reported its devices; start one on a lab machine: farm-agent start"
            )
        return hello

    def _ask_agent(self, lock: SchedulerLock, *, keep: bool) -> AgentHello:
        machine = self._machine
        with ExitStack() as opened:
            # The stack is left in reverse: the agent has ended before another process may start its own.
            opened.enter_context(lock)
            agent = machine.start_agent()
            opened.callback(agent.close, grace_s=_ASKED_GRACE_S)
            until = time.monotonic() + HELLO_LIMIT_S
            while time.monotonic() < until:
                events = agent.events(_LISTEN_S)
                for event in events:
                    if isinstance(event, MessageReceived) and isinstance(event.message, AgentHello):
                        with self._database.write() as turn:
                            devices.record_hello(turn, event.message, utc_now(), sole=True)
                        if keep:
                            # The stack that this returns is never closed: agent and lock stay as they are.
                            opened.pop_all()
                            # What came together with the hello is for the scheduler to hear.
                            agent.hear_again(events)
                            machine.keep(lock, agent)
                        return event.message
        raise UnreachableError(f"the agent did not report for {HELLO_LIMIT_S:.0f} s; see {machine.agent_log}")

    def _recorded_by_holder(self) -> AgentHello | None:
        """Return the record of the process that schedules now; None until it has made one."""
        holder = lock_holder(self._machine.home.scheduler_lock)
        if holder is None:
            return None
        with self._database.read() as session:
            recorded = devices.recorded_hello(session)
        # An older record is of the previous scheduler, whose agent may have had other devices.
        if recorded is None or recorded.seen_at.timestamp() < holder.since_at:
            return None
        return recorded.hello
