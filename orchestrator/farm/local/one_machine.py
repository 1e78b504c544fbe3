"""The scheduling of one machine: the lock of the process that schedules, the agent that it starts, and the
devices that are present, as a running scheduler recorded them or as an agent reports them.
"""

import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final

from agent.wire.messages import AgentHello
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.campaigns import campaigns, farm_state
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.dispatch.base import DispatchEvent, MessageReceived
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
    _watch: Thread | None = field(default=None, init=False)
    _needed: Event = field(default_factory=Event, init=False)

    @property
    def agent_log(self) -> Path:
        """The file of the embedded agent's stderr."""
        return self.home.agent / "agent.log"

    def lock(self, campaign_no: int | None = None) -> SchedulerLock | None:
        """Take the right to schedule, or a kept one; None while another has it. Raises `UnreachableError`."""
        self._end_watch()
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

    def begin(self) -> None:
        """Keep an agent that lists its devices, unless another process schedules or waits for a campaign.

        Where one waits later, before this process needs them, agent and lock are let go of. Raises
        `UnreachableError`.
        """
        if self._is_waited_for():
            return
        lock = self.lock()
        if lock is None:
            return
        with ExitStack() as opened:
            opened.enter_context(lock)
            agent = self.start_agent()
            opened.pop_all()
        self.keep(lock, agent)
        self._needed.clear()
        self._watch = Thread(target=self._watch_others, args=(agent,), name="watch-others", daemon=True)
        self._watch.start()

    def record(self, hello: AgentHello) -> None:
        """Store the devices of the agent, for the other processes of this farm, too."""
        with self.database.write() as turn:
            devices.record_hello(turn, hello, utc_now(), sole=True)

    def _watch_others(self, agent: EmbeddedDispatcher) -> None:
        # As in the endpoint's thread: the main thread must not be interrupted in a transaction.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        is_recorded = False
        # Of an agent that is lost, who needs one next starts another and tells why it cannot.
        with suppress(UnreachableError):
            while not self._is_waited_for():
                # Other processes plan with these devices: only then a campaign of theirs can wait.
                if not is_recorded and (hello := _hello_among(agent.received())) is not None:
                    self.record(hello)
                    is_recorded = True
                if self._needed.wait(_LOOK_EVERY_S):
                    return
        self._let_go()

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._needed.set()
            self._watch.join()
            self._watch = None

    def _is_waited_for(self) -> bool:
        with self.database.read() as session:
            return campaigns.any_waits(session)

    def close(self) -> None:
        """End an agent that was kept and not needed, then let another process schedule."""
        self._end_watch()
        self._let_go()

    def _let_go(self) -> None:
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

        Until then the process of another campaign may take its place, as `OneMachine.begin`.
        """
        if self._lab.is_lab or self._hello is not None:
            return
        self._machine.begin()

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
                hello = _hello_among(events)
                if hello is not None:
                    machine.record(hello)
                    if keep:
                        # The stack that this returns is never closed: agent and lock stay as they are.
                        opened.pop_all()
                        # What came together with the hello is for the scheduler to hear.
                        agent.hear_again(events)
                        machine.keep(lock, agent)
                    return hello
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


def _hello_among(events: Iterable[DispatchEvent]) -> AgentHello | None:
    messages = (event.message for event in events if isinstance(event, MessageReceived))
    return next((message for message in messages if isinstance(message, AgentHello)), None)
