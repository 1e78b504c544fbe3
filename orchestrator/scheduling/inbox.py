"""What an agent's word does to the database, and what is to be sent once that is committed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from sqlmodel import Session

from agent.wire import failpoint
from agent.wire.messages import (
    PROTOCOL_VERSION,
    AgentAlive,
    AgentHello,
    CancelJob,
    ForAgent,
    Heartbeat,
    JobRefused,
    JobResult,
    JobStarted,
    Receipt,
    RunnerOutput,
    Shutdown,
    Upgrade,
)
from orchestrator.db import tables
from orchestrator.db.engine import turn
from orchestrator.db.write import (
    agents,
    attempts,
    campaigns,
    devices,
    ingest,
    outbox,
    outputs,
    running_attempts,
)
from orchestrator.dispatch.base import (
    AgentLost,
    BrokerBack,
    DispatchEvent,
    IncompatibleHello,
    MessageReceived,
)
from orchestrator.scheduling.available_devices import Roster

UPGRADE_COMMAND: Final = "pip install --upgrade 'delegate-farm[lab]' && farm-agent start"

_PHASE_EVERY_S = 2.0
_ABOUT_ATTEMPTS = (Heartbeat, JobStarted, JobRefused, JobResult, RunnerOutput)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Todo:
    """What one transaction leaves to be done after its commit.

    `freed`: devices whose host may take another cell. `news`: something happened that a watcher wants
    to see. `republish`: the broker may have lost what it held. `greeted`: the roster is out of date.
    """

    replies: list[tuple[str, ForAgent]] = field(default_factory=list)
    freed: set[str] = field(default_factory=set)
    news: bool = False
    republish: bool = False
    greeted: bool = False


@dataclass(slots=True)
class Intake:
    """Takes words in. `patience_s`: how long a returned agent has to speak of the attempts it had."""

    roster: Roster
    sole: bool
    patience_s: float
    beat_every_s: float
    doubtful: dict[str, float] = field(default_factory=dict)
    _phases: dict[str, tuple[str, str, float, float]] = field(default_factory=dict)
    _refused: set[str] | None = None

    def matters(self, event: DispatchEvent) -> bool:
        """False for a sign of life that the database need not hear of."""
        if not isinstance(event, MessageReceived):
            return True
        match event.message:
            case Heartbeat(attempt_id=attempt_id, phase=phase):
                owner, known, phase_after, beat_after = self._phases.get(attempt_id, ("", "", 0.0, 0.0))
                if owner != event.agent_id:
                    return True
                self.doubtful.pop(attempt_id, None)
                now_s = time.monotonic()
                return (phase != known and now_s >= phase_after) or now_s >= beat_after
            case AgentAlive():
                self.roster.heard(event.agent_id, datetime.now(UTC))
                return False
        return True

    def prepare(self, session: Session, events: Iterable[DispatchEvent]) -> None:
        """Load what these words are about, all at once."""
        messages = [event.message for event in events if isinstance(event, MessageReceived)]
        named = [m.attempt_id for m in messages if isinstance(m, _ABOUT_ATTEMPTS)]
        if not named:
            return
        ended = {m.attempt_id for m in messages if isinstance(m, JobResult)}
        turn.load_attempts(session, named)
        known = [row for name in ended if (row := turn.get(session, tables.Attempt, name))]
        turn.load_history(session, {row.cell_id for row in known})

    def take(self, session: Session, event: DispatchEvent, todo: Todo, now: datetime) -> None:
        """Do what one event asks of the database."""
        match event:
            case MessageReceived(agent_id, message):
                self._hear(session, agent_id, message, todo, now)
            case IncompatibleHello(agent_id, protocol):
                self._refuse(session, agent_id, protocol, todo, now)
            case AgentLost(reason):
                log.info("the agent is lost: %s", reason)
                self.roster.lost()
                todo.news = True
            case BrokerBack():
                todo.republish = True

    def _hear(self, session: Session, agent_id: str, message: object, todo: Todo, now: datetime) -> None:
        if not self.sole:
            if not isinstance(message, AgentHello) and agent_id in self._strangers(session):
                return
            self.roster.heard(agent_id, now)
            if isinstance(message, _ABOUT_ATTEMPTS):
                name = message.attempt_id
                if not _may_speak_of(session, agent_id, name):
                    log.warning("agent %s speaks of attempt %s of another; it is ignored", agent_id, name)
                    return
        match message:
            case AgentHello():
                self._greet(session, message, todo, now)
            case JobStarted():
                self._phases.pop(message.attempt_id, None)
                attempts.started(session, message.attempt_id, message.epoch, now)
                todo.news = True
            case Heartbeat():
                self._beat(session, agent_id, message, todo, now)
            case RunnerOutput():
                outputs.append(session, message)
            case JobRefused():
                self._free(session, message.attempt_id, todo)
                ingest.refuse(session, message, now)
            case JobResult():
                self._result(session, agent_id, message, todo, now)

    def _strangers(self, session: Session) -> set[str]:
        """Agents that speak another protocol: until a hello says otherwise, whatever they mean is unknown,
        and no receipt of theirs ends what they keep.
        """
        if self._refused is None:
            self._refused = agents.refused(session)
        return self._refused

    def _greet(self, session: Session, hello: AgentHello, todo: Todo, now: datetime) -> None:
        """A hello after a break: what was under way is in doubt until the agent speaks of it."""
        row = session.get(tables.Agent, hello.agent_id)
        if not self.sole and row is not None and row.state == tables.AGENT_REMOVED:
            log.warning("agent %s was removed and still says hello; it is told to end", hello.agent_id)
            todo.replies.append((hello.agent_id, Shutdown()))
            return
        stolen = [d.device_id for d in hello.devices if not d.device_id.startswith(f"{hello.agent_id}.")]
        if not self.sole and stolen:
            log.warning("agent %s names devices that are not its own: %s", hello.agent_id, ", ".join(stolen))
            return
        self._strangers(session).discard(hello.agent_id)
        before = agents.present_devices_of(session, hello.agent_id)
        devices.record_hello(session, hello, now, sole=self.sole)
        ids = tuple(device.device_id for device in hello.devices)
        if self.sole:
            hint = {entry.kind: entry.reason for entry in hello.missing}
            campaigns.drop_vanished(session, ids, hint, now)
        todo.greeted = True
        self.roster.heard(hello.agent_id, now)
        self._strand(session, hello, before, now)
        until = time.monotonic() + self.patience_s
        for attempt_id in running_attempts.of_agent(session, hello.agent_id):
            if attempt_id not in hello.live:
                self.doubtful.setdefault(attempt_id, until)
        for agent_id, job in outbox.unstarted(session, agent_id=hello.agent_id):
            if not self.sole and job.attempt_id not in hello.live:
                self.doubtful.pop(job.attempt_id, None)
                todo.replies.append((agent_id, job))
        todo.freed.update(ids)
        todo.news = True

    def _strand(self, session: Session, hello: AgentHello, before: set[str], now: datetime) -> None:
        """Cells of a device that its agent no longer names can run nowhere."""
        if self.sole:
            return
        named = {device.device_id for device in hello.devices}
        gone = [name for name in agents.devices_of(session, [hello.agent_id]) if name in before - named]
        if gone:
            why = "; ".join(f"{entry.kind}: {entry.reason}" for entry in hello.missing)
            agents.strand(session, gone, why or f"agent {hello.agent_id} does not name it any more", now)

    def _refuse(self, session: Session, agent_id: str, protocol: int, todo: Todo, now: datetime) -> None:
        why = f"it speaks protocol {protocol}, the farm {PROTOCOL_VERSION}; on its host: {UPGRADE_COMMAND}"
        log.warning("agent %s is refused: %s", agent_id, why)
        agents.refuse(session, agent_id, protocol, why, now)
        self._strangers(session).add(agent_id)
        todo.greeted = True
        todo.replies.append((agent_id, Upgrade(protocol=PROTOCOL_VERSION, command=UPGRADE_COMMAND)))
        todo.news = True

    def _beat(self, session: Session, agent_id: str, beat: Heartbeat, todo: Todo, now: datetime) -> None:
        """The reply to a heartbeat is the wish to end, where there is one."""
        now_s = time.monotonic()
        self.doubtful.pop(beat.attempt_id, None)
        again = (now_s + _PHASE_EVERY_S, now_s + self.beat_every_s / 2)
        self._phases[beat.attempt_id] = (agent_id, beat.phase, *again)
        standing = running_attempts.note_beat(session, beat, now)
        if standing != "wanted":
            todo.replies.append((agent_id, CancelJob(attempt_id=beat.attempt_id)))
        todo.news = todo.news or standing == "wanted"

    def _result(self, session: Session, agent_id: str, message: JobResult, todo: Todo, now: datetime) -> None:
        self._free(session, message.attempt_id, todo)
        with session.no_autoflush:
            outcome = ingest.apply(session, message, now)
        failpoint.reached("orchestrator.before_ingest_commit")
        if outcome in ("conflict", "unknown"):
            log.warning("result of attempt %s: %s; it is not stored", message.attempt_id, outcome)
        todo.replies.append((agent_id, Receipt(attempt_id=message.attempt_id)))

    def _free(self, session: Session, attempt_id: str, todo: Todo) -> None:
        attempt = turn.get(session, tables.Attempt, attempt_id, lock=True)
        if attempt is not None:
            todo.freed.add(attempt.device_id)
        self.doubtful.pop(attempt_id, None)
        self._phases.pop(attempt_id, None)
        todo.news = True


def _may_speak_of(session: Session, agent_id: str, attempt_id: str) -> bool:
    """An attempt is of the agent whose device it uses; what nobody knows harms nobody."""
    attempt = turn.get(session, tables.Attempt, attempt_id)
    return attempt is None or attempt.device_id.startswith(f"{agent_id}.")
