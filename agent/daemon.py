"""The agent: takes jobs from a link, runs each in a leased runner process, hands the results over.

One thread, one loop. It wakes for a message, for the end of a child, and once per heartbeat.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import selectors
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version

from agent.attempt import lifecycle
from agent.attempt.artifacts import ArtifactError, verified_file
from agent.attempt.journal import Journal
from agent.attempt.result import Outcome, from_result_file, has_result, reported
from agent.attempt.running import RunningAttempt, log_gone
from agent.config import AgentConfig
from agent.devices import ProbeError, ProbeReport, probe
from agent.processes import cgroup
from agent.processes.descendants import strays
from agent.processes.supervisor import become_subreaper, bury, end_strays
from agent.transport.base import Transport, TransportError
from agent.transport.socket import SocketLink
from agent.wire import failpoint
from agent.wire.messages import (
    PROTOCOL_VERSION,
    AgentAlive,
    AgentHello,
    CancelJob,
    ForAgent,
    JobRefused,
    JobResult,
    JobSpec,
    Reason,
    ReasonCode,
    Receipt,
    Shutdown,
    Status,
    Upgrade,
    decode_for_agent,
)

_ATTEMPT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
UPGRADE_EXIT = 3
"""Exit code of an agent of another protocol than the farm's: started again, it would be refused again."""

log = logging.getLogger(__name__)

_LEASE_POLL_S = 0.2
_PROGRESS_POLL_S = 1.0
_DRAIN_S = 2.0
_PREDECESSOR_PATIENCE_S = 15.0


class Agent:
    """See the module's text."""

    def __init__(self, config: AgentConfig, link: Transport, probe_report: ProbeReport) -> None:
        """Open the journal. Raises `sqlite3.Error`."""
        self._config = config
        self._link = link
        self._missing = probe_report.missing
        named = (config.named(device) for device in probe_report.devices)
        self._devices = {device.device_id: device for device in named}
        self._journal = Journal(config.journal)
        self._live: dict[str, RunningAttempt] = {}
        self._leaving: str | None = None
        self._terminated = False
        self._connected = True
        self._exit_code = 0
        self._alive_due_s = 0.0
        self._told_s: dict[str, float] = {}

    def run(self) -> int:
        """Serve until told to shut down or until the orchestrator is gone; 0 after an orderly end."""
        become_subreaper()
        self._recover()
        with self._signals() as wake:
            while not (self._leaving and all(live.waits_for_room for live in self._live.values())):
                if self._link.tend():
                    self._greet()
                self._wait(wake)
                self._advance()
                self._say_alive()
        self._link.close(drain_s=_DRAIN_S)
        self._journal.close()
        return self._exit_code

    def _greet(self) -> None:
        """Say who we are, what runs, and what is still owed."""
        self._link.send(
            AgentHello(
                protocol=PROTOCOL_VERSION,
                agent_id=self._config.agent_id,
                host=socket.gethostname(),
                version=version("delegate-farm"),
                devices=tuple(self._devices.values()),
                missing=self._missing,
                live=tuple(self._live),
                epochs=self._journal.epochs(),
            )
        )
        for live in self._live.values():
            live.speak_again()
        for result in self._journal.spooled():
            self._tell(result)

    def _tell(self, result: JobResult) -> None:
        """Send a result, now and again until its receipt."""
        self._told_s[result.attempt_id] = time.monotonic()
        self._link.send(result)

    def _say_alive(self) -> None:
        """A lab hears of an idle agent too; what got no receipt in time is told again."""
        now_s = time.monotonic()
        if self._config.resend_s is None or now_s < self._alive_due_s:
            return
        self._alive_due_s = now_s + self._config.heartbeat_s
        self._link.send(AgentAlive(waiting=len(self._told_s)))
        late = {name for name, told_s in self._told_s.items() if now_s - told_s >= self._config.resend_s}
        if late:
            for result in self._journal.spooled():
                if result.attempt_id in late:
                    self._tell(result)

    def _leave(self, why: str) -> None:
        """End what runs as `interrupted`, then end."""
        if self._leaving is None:
            self._leaving = why
            for live in self._live.values():
                live.happens(lifecycle.ShutdownAsked(time.monotonic(), why))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """SIGINT belongs to whoever started us, SIGTERM means shutdown, SIGCHLD wakes the loop."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._note_termination)
        signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)
            reader.close()
            writer.close()

    def _note_termination(self, *_signal: object) -> None:
        """A signal handler only takes note: the loop acts."""
        self._terminated = True

    def _wait(self, wake: socket.socket) -> None:
        """Sleep until something happens or something is due; take in messages."""
        with selectors.PollSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            if self._connected and self._link.fileno() >= 0:
                writing = selectors.EVENT_WRITE if self._link.has_backlog else 0
                selector.register(self._link, selectors.EVENT_READ | writing)
            ready = selector.select(self._pause_s())
        for key, events in ready:
            if key.fileobj is wake:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                continue
            if events & selectors.EVENT_WRITE:
                self._link.flush()
            if events & selectors.EVENT_READ:
                self._connected = self._receive()

    def _pause_s(self) -> float | None:
        """How long nothing needs to be done; None: until a message comes."""
        pauses = [self._link.pause_s()] if self._connected else []
        if any(live.waits_for_its_device for live in self._live.values()):
            pauses.append(_LEASE_POLL_S)
        elif self._live:
            pauses.append(min(self._config.heartbeat_s, _PROGRESS_POLL_S))
        if self._config.resend_s is not None:
            pauses.append(max(0.0, self._alive_due_s - time.monotonic()))
        return min((pause for pause in pauses if pause is not None), default=None)

    def _receive(self) -> bool:
        """Act on what has arrived; False where nothing more will come."""
        try:
            lines = self._link.receive()
            messages = None if lines is None else [decode_for_agent(line) for line in lines]
        except (TransportError, ValueError) as error:
            log.warning("a message from the orchestrator is not understood: %s", error)
            self._exit_code = 1
            messages = None
        if messages is None:
            self._leave("the orchestrator went away")
            return False
        for message in messages:
            self._obey(message)
        return True

    def _obey(self, message: ForAgent) -> None:
        match message:
            case JobSpec():
                self._take(message)
            case CancelJob(attempt_id=attempt_id):
                if attempt_id in self._live:
                    self._live[attempt_id].happens(lifecycle.CancelAsked(time.monotonic()))
            case Receipt(attempt_id=attempt_id):
                failpoint.reached("agent.before_receipt")
                self._told_s.pop(attempt_id, None)
                self._journal.delivered(attempt_id)
            case Shutdown():
                self._leave("the farm was stopped")
            case Upgrade(protocol=protocol, command=command):
                log.error(
                    "this agent speaks protocol %d, the farm %d; run: %s", PROTOCOL_VERSION, protocol, command
                )
                self._leave("the agent speaks another protocol than the farm")
                self._exit_code = UPGRADE_EXIT

    def _take(self, job: JobSpec) -> None:
        """Accept a job, or refuse it with the reason; a repeated message changes nothing."""
        known = self._journal.state_of(job.attempt_id)
        if known == "open":
            if job.attempt_id in self._live:
                self._live[job.attempt_id].speak_again()
            return
        if known == "spooled":
            for result in self._journal.spooled():
                if result.attempt_id == job.attempt_id:
                    self._tell(result)
            return
        try:
            if known == "delivered":
                raise RefusedError(
                    ReasonCode.RUNNER_ERROR, f"attempt {job.attempt_id} has already ended here"
                )
            live = self._examined(job)
        except RefusedError as refusal:
            reason = Reason(code=refusal.code, text=str(refusal))
            self._link.send(JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason))
            return
        failpoint.reached("agent.before_journal")
        self._journal.accept(job)
        self._live[job.attempt_id] = live

    def _examined(self, job: JobSpec) -> RunningAttempt:
        """A job that this agent can run. Raises `RefusedError`."""
        if self._leaving is not None:
            raise RefusedError(ReasonCode.INTERRUPTED, self._leaving)
        if not _ATTEMPT_ID.fullmatch(job.attempt_id):
            raise RefusedError(ReasonCode.RUNNER_ERROR, f"attempt id {job.attempt_id!r} is no file name")
        last = self._journal.epochs().get(job.device_id, 0)
        if job.epoch <= last:
            text = f"the job has epoch {job.epoch} of {job.device_id}, which has seen {last}: it was given up"
            raise RefusedError(ReasonCode.INTERRUPTED, text)
        device = self._devices.get(job.device_id)
        if device is None:
            have = ", ".join(self._devices)
            raise RefusedError(
                ReasonCode.NO_DEVICE, f"no device {job.device_id!r} on this host; it has {have}"
            )
        try:
            model = verified_file(self._config.store, job.model_sha256, job.model_bytes)
            data = None
            if (asked := job.plan.labelled) is not None:
                data = verified_file(self._config.store, asked.sha256, asked.size_bytes, "labelled data")
        except ArtifactError as error:
            raise RefusedError(ReasonCode.ARTIFACT, str(error)) from error
        return RunningAttempt(self._config, job, device, model, data)

    def _advance(self) -> None:
        """Let signals, time and exits act on every attempt; send what they have to say."""
        if self._terminated:
            self._leave("the agent was told to end (SIGTERM)")
        for live in list(self._live.values()):
            if live.result is None:
                live.advance()
            for message in live.outbox:
                self._link.send(message)
            live.outbox.clear()
            if live.result is not None:
                self._hand_over(live)

    def _hand_over(self, live: RunningAttempt) -> None:
        """Journal the result, send it, free the device and the folder. In this order."""
        assert live.result is not None
        failpoint.reached("agent.after_result_file")
        self._journal.spool(live.result)
        failpoint.reached("agent.after_spool")
        self._tell(live.result)
        failpoint.reached("agent.after_send")
        live.release()
        del self._live[live.job.attempt_id]
        children = [other.runner_pid for other in self._live.values()] + [self._link.pid]
        end_strays(strays(self._live, [pid for pid in children if pid is not None]))

    def _recover(self) -> None:
        """Attempts that were open when an earlier agent died: bury them, report what they left."""
        for job in self._journal.open_jobs():
            folder, device = self._config.folder(job.attempt_id), self._devices.get(job.device_id)
            log_gone(self._config, job.attempt_id, device, bury(job.attempt_id))
            outcome = Outcome(job, device, folder)
            if has_result(folder):
                result = from_result_file(outcome, self._config.store)
            else:
                reason = Reason(
                    code=ReasonCode.INTERRUPTED, text="the agent was killed while this attempt ran"
                )
                result = reported(outcome, Status.FAILED, reason)
            self._journal.spool(result)
            shutil.rmtree(folder, ignore_errors=True)
        cgroup.sweep()


class RefusedError(Exception):
    """Why a job is not taken."""

    def __init__(self, code: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def serve(config: AgentConfig, descriptor: int) -> int:
    """Serve an orchestrator at the other end of a connected socket. Returns the exit code."""
    return serve_over(config, lambda: SocketLink(descriptor))


def serve_over(config: AgentConfig, connect: Callable[[], Transport]) -> int:
    """Be the only agent on `config.state`, list the devices, serve the link. Returns the exit code."""
    config.state.mkdir(parents=True, exist_ok=True)
    lock = os.open(config.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _locked(lock):
            log.error("another agent has been using %s for %.0f s", config.state, _PREDECESSOR_PATIENCE_S)
            return 1
        return Agent(config, connect(), probe(config.probe_command)).run()
    except (ProbeError, OSError, sqlite3.Error) as error:
        log.error("%s", error)
        return 1
    finally:
        os.close(lock)


def _locked(descriptor: int) -> bool:
    """Wait for the agent before us, which may still be burying its runners."""
    deadline = time.monotonic() + _PREDECESSOR_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        else:
            return True
