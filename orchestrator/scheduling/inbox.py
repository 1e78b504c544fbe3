"""Applies the agents' messages to the database; returns the tasks to do after the commit."""

import logging
import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from agent.wire import failpoint
from agent.wire import messages as wire
from agent.wire.logs import RareLog
from orchestrator.config.clock import utc_now
from orchestrator.db import tables
from orchestrator.db.cells import attempts, jobs, running_attempts
from orchestrator.db.devices import agents, devices
from orchestrator.db.engine.turn import Turn
from orchestrator.db.queue import picking
from orchestrator.db.results import references
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.dispatch import base as dispatch
from orchestrator.scheduling.available_devices import AvailableDevices

UPGRADE_COMMAND: Final = "cd delegate-farm && git pull && pip install '.[lab]' && farm-agent start"

_PHASE_EVERY_S: Final = 2.0
"""The least time between two writes of a running attempt's phase, in seconds. Chosen: a watcher sees
every phase that lasts; smaller: each short phase of each device is a transaction.
"""

_CLOCK_STEP_S: Final = 30.0
"""The least change of an agent's clock against the server's that is stored, in seconds. Chosen: half of what
`farm doctor` calls a fault; smaller: messages that are a little late cost transactions; larger: a clock that
was set right may still be called wrong.
"""

_ABOUT_ATTEMPTS: Final = (wire.Heartbeat, wire.JobStarted, wire.JobRefused, wire.JobResult, wire.RunnerOutput)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The actions that follow the commit of a transaction.

    `freed`: devices whose host may take another cell. `news`: something happened that a watcher wants
    to see. `republish`: the broker may have lost what it held. `agents_changed`: an agent or its devices are
    not what they were.
    """

    replies: tuple[tuple[str, wire.ForAgent], ...] = ()
    freed: frozenset[str] = frozenset()
    news: bool = False
    republish: bool = False
    agents_changed: bool = False

    @classmethod
    def of_all(cls, parts: "Sequence[FollowUp]") -> "FollowUp":
        """Combine the actions of several parts."""
        return cls(
            tuple(reply for part in parts for reply in part.replies),
            frozenset(device_id for part in parts for device_id in part.freed),
            any(part.news for part in parts),
            any(part.republish for part in parts),
            any(part.agents_changed for part in parts),
        )


_NOTHING: Final = FollowUp()


@dataclass(frozen=True, slots=True)
class _LastBeat:
    """The heartbeat of an attempt that was stored last, and when (monotonic) to store the next one."""

    agent_id: str
    phase: str
    new_phase_after_s: float
    same_phase_after_s: float


@dataclass(slots=True)
class Inbox:
    """Applies messages in the order of their arrival.

    `sole`: there is one agent, a child of this process. `patience_s`: how long a returned agent has to report
    the attempts it had; until then (monotonic) they are `in_doubt`. `heartbeat_s`: how often agents send a
    heartbeat.
    """

    available: AvailableDevices
    sole: bool
    patience_s: float
    heartbeat_s: float
    in_doubt: dict[str, float] = field(default_factory=dict)
    _beats: dict[str, _LastBeat] = field(default_factory=dict)
    _ignored: RareLog = field(default_factory=lambda: RareLog(log, "messages that are ignored"))
    _refused: set[str] | None = None
    _undelivered: dict[str, bool] = field(default_factory=dict)
    _ahead_s: dict[str, float] = field(default_factory=dict)

    def is_relevant(self, event: dispatch.DispatchEvent) -> bool:
        """Return False for a sign of life that is kept in memory only and need not be stored."""
        if not isinstance(event, dispatch.MessageReceived):
            return True
        match event.message:
            case wire.Heartbeat(attempt_id=attempt_id, phase=phase):
                last = self._beats.get(attempt_id)
                if last is None or last.agent_id != event.agent_id:
                    return True
                self.in_doubt.pop(attempt_id, None)
                now_s = time.monotonic()
                new_phase = phase != last.phase and now_s >= last.new_phase_after_s
                return new_phase or now_s >= last.same_phase_after_s
            case wire.AgentAlive(waiting=waiting) as alive:
                now = utc_now()
                self.available.note_heard(event.agent_id, now)
                waits = self._undelivered.get(event.agent_id) != (waiting > 0)
                return waits or self._clock_moved(event.agent_id, alive, now)
        return True

    def forget_stored(self) -> None:
        """Forget what counts as stored: a turn was rolled back, and its messages are applied again."""
        self._beats.clear()
        self._undelivered.clear()
        self._ahead_s.clear()
        self._refused = None

    def apply(self, turn: Turn, events: Sequence[dispatch.DispatchEvent], now: datetime) -> FollowUp:
        """Apply messages. Raises `IllegalMoveError`, `RefusedError`, `ValueError` or `KeyError` for a
        message that cannot be applied; the whole turn is then to be rolled back.
        """
        _load(turn, events)
        # Read in the turn that applies the messages: the dispatcher's keys may be older than a revocation.
        revoked = set() if self.sole else agents.revoked(turn, now)
        return FollowUp.of_all([self._apply(turn, event, now, revoked) for event in events])

    def _apply(self, turn: Turn, event: dispatch.DispatchEvent, now: datetime, revoked: Set[str]) -> FollowUp:
        match event:
            case (
                dispatch.MessageReceived(agent_id)
                | dispatch.UnusableResult(agent_id)
                | dispatch.IncompatibleHello(agent_id)
            ) if agent_id in revoked:
                self._ignored.warning(f"agent {agent_id} was revoked; what it sends is ignored")
                return _NOTHING
            case dispatch.MessageReceived(agent_id, message):
                return self._on_message(turn, agent_id, message, now)
            case dispatch.UnusableResult():
                return self._on_unusable(turn, event, now)
            case dispatch.IncompatibleHello(agent_id, protocol):
                return self._on_old_hello(turn, agent_id, protocol, now)
            case dispatch.AgentLost(reason):
                log.info("the agent is lost: %s", reason)
                self.available.forget_agents()
                return FollowUp(news=True)
            case dispatch.BrokerBack():
                return FollowUp(republish=True)

    def _on_message(self, turn: Turn, agent_id: str, message: object, now: datetime) -> FollowUp:
        if not self.sole:
            if not isinstance(message, wire.AgentHello) and agent_id in self._refused_agents(turn):
                return _NOTHING
            self.available.note_heard(agent_id, now)
            if isinstance(message, _ABOUT_ATTEMPTS):
                name = message.attempt_id
                if not _owns(turn, agent_id, name):
                    self._ignored.warning(
                        f"agent {agent_id} speaks of attempt {name} of another; it is ignored"
                    )
                    return _NOTHING
        match message:
            case wire.AgentHello():
                return self._on_hello(turn, message, now)
            case wire.JobStarted():
                # The first heartbeat after it is stored at once: a watcher sees the first phase.
                self._beats.pop(message.attempt_id, None)
                attempts.start(turn, message.attempt_id, message.epoch, now)
                return FollowUp(news=True)
            case wire.Heartbeat():
                return self._on_heartbeat(turn, agent_id, message, now)
            case wire.RunnerOutput():
                running_attempts.append(turn, message)
            case wire.JobRefused():
                freed = self._free(turn, message.attempt_id)
                ingest.refuse(turn, message, now)
                assignments.fail_left_behind(turn, message.attempt_id, now, sole=self.sole)
                return FollowUp(freed=freed, news=True)
            case wire.JobResult():
                return self._on_result(turn, agent_id, message, now)
            case wire.AgentAlive():
                self._on_alive(turn, agent_id, message, now)
        return _NOTHING

    def _on_alive(self, turn: Turn, agent_id: str, alive: wire.AgentAlive, now: datetime) -> None:
        """Store what changed: `farm doctor` needs to know since when results wait, not how many."""
        self._undelivered[agent_id] = alive.waiting > 0
        agents.note_undelivered(turn, agent_id, now if alive.waiting else None)
        if self._clock_moved(agent_id, alive, now):
            self._ahead_s[agent_id] = _ahead_s(alive, now)
            agents.note_clock(turn, agent_id, self._ahead_s[agent_id])

    def _clock_moved(self, agent_id: str, alive: wire.AgentAlive, now: datetime) -> bool:
        """Whether an agent's clock is not where it was against the server's, as far as is known.

        A heartbeat that waited in the broker makes a clock look late; the next one in time mends that.
        """
        if alive.clock_ns is None:
            return False
        known_s = self._ahead_s.get(agent_id)
        return known_s is None or abs(_ahead_s(alive, now) - known_s) >= _CLOCK_STEP_S

    def _on_unusable(self, turn: Turn, event: dispatch.UnusableResult, now: datetime) -> FollowUp:
        """End the attempt as failed, as if its agent had reported that, and confirm the result."""
        attempt = turn.find_attempt(event.attempt_id)
        if attempt is None:
            return FollowUp(((event.agent_id, wire.Receipt(attempt_id=event.attempt_id)),))
        text = f"its result cannot be stored: {event.why}"
        substitute = wire.JobResult(
            attempt_id=attempt.attempt_id,
            epoch=event.epoch,
            cell_id=attempt.cell_id,
            device_id=attempt.device_id,
            status=wire.Status.FAILED,
            reason=wire.Reason(code=wire.ReasonCode.RUNNER_ERROR, text=text),
        )
        return self._on_message(turn, event.agent_id, substitute, now)

    def _refused_agents(self, turn: Turn) -> set[str]:
        """Agents that speak another protocol. Until a new hello arrives, the farm cannot know what their
        messages mean, and acknowledges none of their results: they keep them.
        """
        if self._refused is None:
            self._refused = agents.refused(turn)
        return self._refused

    def _on_hello(self, turn: Turn, hello: wire.AgentHello, now: datetime) -> FollowUp:
        """Store a hello. Attempts that ran before it are in doubt until the agent reports them."""
        name = hello.agent_id
        if not self.sole and agents.state_of(turn, name) == tables.AGENT_REMOVED:
            self._ignored.warning(f"agent {name} was removed and still sends hello; it is asked to end")
            return FollowUp(replies=((name, wire.Shutdown()),))
        # An agent signs for its own name only: with a foreign device it would get that agent's cells.
        stolen = [d.device_id for d in hello.devices if not d.device_id.startswith(f"{name}.")]
        if not self.sole and stolen:
            self._ignored.warning(f"agent {name} names devices that are not its own: {', '.join(stolen)}")
            return _NOTHING
        self._refused_agents(turn).discard(name)
        before = _served(turn, name)  # as it was before this hello replaces it
        devices.record_hello(turn, hello, now, sole=self.sole)
        self.available.note_heard(name, now)
        self._fail_unplaceable(turn, hello, before - _served(turn, name), now)
        until = time.monotonic() + self.patience_s
        for attempt_id in running_attempts.of_agent(turn, name):
            if attempt_id not in hello.live:
                # A further hello grants no more time.
                self.in_doubt.setdefault(attempt_id, until)
        again = [] if self.sole else self._unstarted(turn, hello)
        freed = frozenset(device.device_id for device in hello.devices)
        return FollowUp(tuple(again), freed, news=True, agents_changed=True)

    def _unstarted(self, turn: Turn, hello: wire.AgentHello) -> list[tuple[str, wire.ForAgent]]:
        """Jobs that the agent may not have received: they are sent again and are no longer in doubt."""
        again: list[tuple[str, wire.ForAgent]] = []
        for agent_id, job in jobs.unstarted(turn, agent_id=hello.agent_id):
            if job.attempt_id not in hello.live:
                for own in job.attempts:
                    self.in_doubt.pop(own.attempt_id, None)
                again.append((agent_id, job))
        return again

    def _fail_unplaceable(
        self, turn: Turn, hello: wire.AgentHello, lost: set[tuple[str, str]], now: datetime
    ) -> None:
        """End the cells that the agent's devices serve no longer, and that no other device can run.

        `lost`: what `_served` told before this hello, and does not tell after it.
        """
        if self.sole:
            hint = {entry.kind: entry.reason for entry in hello.missing}
            assignments.fail_vanished(turn, [device.device_id for device in hello.devices], hint, now)
        elif lost:
            why = "; ".join(f"{entry.kind}: {entry.reason}" for entry in hello.missing)
            why = why or f"so says the last hello of agent {hello.agent_id}"
            gone = sorted(device_id for device_id, line in lost if line == device_id)
            assignments.fail_unplaceable(turn, gone, why, now)

    def _on_old_hello(self, turn: Turn, agent_id: str, protocol: int, now: datetime) -> FollowUp:
        versions = f"it speaks protocol {protocol}, the farm {wire.PROTOCOL_VERSION}"
        why = f"{versions}; on its host: {UPGRADE_COMMAND}"
        self._ignored.warning(f"agent {agent_id} is refused: {why}")
        agents.refuse(turn, agent_id, protocol, why, now)
        self._refused_agents(turn).add(agent_id)
        upgrade = wire.Upgrade(protocol=wire.PROTOCOL_VERSION, command=UPGRADE_COMMAND)
        return FollowUp(((agent_id, upgrade),), news=True, agents_changed=True)

    def _on_heartbeat(self, turn: Turn, agent_id: str, beat: wire.Heartbeat, now: datetime) -> FollowUp:
        """Store a heartbeat. Its reply is the request to end the attempt, where one is due."""
        self.in_doubt.pop(beat.attempt_id, None)
        if attempts.note_heartbeat(turn, beat, now) != "wanted":
            return FollowUp(replies=((agent_id, wire.CancelJob(attempt_id=beat.attempt_id)),))
        now_s = time.monotonic()
        # Half the interval: a heartbeat that arrives a little early must not leave a gap of two.
        stored = _LastBeat(agent_id, beat.phase, now_s + _PHASE_EVERY_S, now_s + self.heartbeat_s / 2)
        # Of attempts that run alone: an agent may invent any number of others.
        self._beats[beat.attempt_id] = stored
        return FollowUp(news=True)

    def _on_result(self, turn: Turn, agent_id: str, message: wire.JobResult, now: datetime) -> FollowUp:
        freed = self._free(turn, message.attempt_id)
        # The changes of all messages are flushed together at the end, not before each one's questions.
        with turn.no_autoflush:
            outcome = ingest.apply(turn, message, now)
        failpoint.reached("orchestrator.before_ingest_commit")
        if outcome in ("conflict", "unknown"):
            self._ignored.warning(f"result of attempt {message.attempt_id}: {outcome}; it is not stored")
            agents.note_dropped(turn, agent_id, now)
        elif outcome != "duplicate":
            references.claim(turn, agent_id, message, now, trusted=self.sole)
            assignments.fail_left_behind(turn, message.attempt_id, now, sole=self.sole)
        receipt = wire.Receipt(attempt_id=message.attempt_id)
        return FollowUp(((agent_id, receipt),), freed, news=True)

    def _free(self, turn: Turn, attempt_id: str) -> frozenset[str]:
        """Forget an attempt that ends; returns its device."""
        attempt = turn.find_attempt(attempt_id)
        self.in_doubt.pop(attempt_id, None)
        self._beats.pop(attempt_id, None)
        return frozenset() if attempt is None else frozenset({attempt.device_id})


def _served(turn: Turn, agent_id: str) -> set[tuple[str, str]]:
    """Return the present devices of an agent, each with its own line and with those of its classes."""
    present = agents.present_devices_of(turn, agent_id)
    classes = picking.members(turn, present).items()
    own = {(device.device_id, device.device_id) for device in present}
    return own | {(device_id, line) for line, takers in classes for device_id in takers}


def _ahead_s(alive: wire.AgentAlive, now: datetime) -> float:
    return (alive.clock_ns or 0) / 1e9 - now.timestamp()


def _load(turn: Turn, events: Iterable[dispatch.DispatchEvent]) -> None:
    """Load what the messages are about: a turn over hundreds of them takes a handful of queries."""
    messages = [event.message for event in events if isinstance(event, dispatch.MessageReceived)]
    named = [m.attempt_id for m in messages if isinstance(m, _ABOUT_ATTEMPTS)]
    if not named:
        return
    ended = {m.attempt_id for m in messages if isinstance(m, wire.JobResult)}
    turn.load_attempts(named)
    known = [row for name in ended if (row := turn.find_attempt(name))]
    turn.load_history({row.cell_id for row in known})


def _owns(turn: Turn, agent_id: str, attempt_id: str) -> bool:
    """Return whether an attempt uses a device of this agent; an unknown one, with which nothing is done."""
    attempt = turn.find_attempt(attempt_id)
    return attempt is None or attempt.device_id.startswith(f"{agent_id}.")
