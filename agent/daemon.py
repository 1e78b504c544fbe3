"""The agent: receives jobs over a link, runs each in a leased runner process, delivers the results.

One thread, one loop. It wakes for a message, for the end of a child, and once per heartbeat.
"""

import contextlib
import logging
import os
import resource
import selectors
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from agent.attempt import lifecycle
from agent.attempt.admission import RefusedError, admit
from agent.attempt.journal import Journal
from agent.attempt.recovery import recover
from agent.attempt.room import NoRoomError
from agent.attempt.running import RunningAttempt
from agent.config import AgentConfig
from agent.devices import ProbeError, ProbeReport
from agent.processes.descendants import strays
from agent.processes.signals import WakingSignals
from agent.processes.supervisor import become_subreaper, kill_strays
from agent.transport.socket import SocketLink, Transport, TransportError
from agent.wire import failpoint
from agent.wire import messages as wire
from agent.wire.private_folder import ExposedError, private_folder
from agent.wire.service_manager import ServiceManager
from runtime.common.durable import open_lock

UPGRADE_EXIT: Final = 3
"""Exit code of an agent whose protocol is not the farm's: after a restart it would be refused again."""

log = logging.getLogger(__name__)

_LEASE_POLL_S: Final = 0.2
"""Seconds between two tries for a device that another attempt holds: nothing wakes the agent when the
lock is freed. Larger leaves the device idle for longer between attempts; smaller costs more system calls."""
_PROGRESS_POLL_S: Final = 1.0
"""Longest pause in seconds while a runner works: how late its progress and a passed limit are noticed."""
_DRAIN_S: Final = 2.0
"""Seconds to send the last messages before the exit. Results that are not sent stay in the journal."""
_PREDECESSOR_PATIENCE_S: Final = 30.0
"""Seconds that a new agent waits for the one before it, which gives its runners up to 12 s to judge what they
have finished (`lifecycle.CONCLUDE_S`) and needs up to 10 s to end them (`supervisor.REAP_LIMIT_S`). Smaller
would make a restart fail; larger only delays the error."""
_LOOK_EVERY_S: Final = 60.0
"""Seconds between two lists of the devices that results give cause for. Each takes the agent a second or two;
with a smaller pause, runners that say something else each time would keep it busy."""

_LEAST_OPEN_FILES: Final = 256
"""Files that an agent may have to open at once: its own are some thirty, and each device that works adds ten.
With fewer, it would end in the middle of attempts."""


class Agent:
    """One agent's loop. It owns the journal and the running attempts; `link` carries its messages."""

    def __init__(self, config: AgentConfig, link: Transport, probe_report: ProbeReport) -> None:
        """Open the journal. Raises `sqlite3.Error`."""
        self._config = config
        self._link = link
        self._missing = probe_report.missing
        named = (config.named(device) for device in probe_report.devices)
        self._devices = {device.device_id: device for device in named}
        self._journal = Journal(config.journal)
        self._running: dict[str, RunningAttempt] = {}
        self._ending_because: str | None = None
        self._connected = True
        self._exit_code = 0
        self._alive_due_s = 0.0
        self._sent_s: dict[str, float] = {}
        self._manager = ServiceManager.from_environment()
        self._must_look, self._look_due_s = False, 0.0

    def run(self) -> int:
        """Serve until a shutdown or until the orchestrator is gone; return 0 after an orderly end."""
        become_subreaper()
        # Before any message: what a killed agent left running may still compute on the devices.
        recover(self._config, self._devices, self._journal)
        with WakingSignals() as signals:
            self._manager.ready("serving; the farm was not reached yet")
            while not self._ended():
                # Of this loop alone, not of the link: a broker that is away is not cured by a new agent.
                self._manager.alive()
                if self._link.tend():
                    self._on_connected()
                self._wait(signals)
                if signals.terminated:
                    self._end("the agent was told to end (SIGTERM)")
                self._advance()
                # Beside a measurement it would disturb that.
                if self._must_look and not self._running and time.monotonic() >= self._look_due_s:
                    self._look_again()
                self._send_alive()
        self._manager.stopping()
        self._link.close(drain_s=_DRAIN_S)
        self._journal.close()
        return self._exit_code

    def _ended(self) -> bool:
        """Whether a shutdown is complete. An attempt that waits for disk space is left to the next agent."""
        return self._ending_because is not None and all(
            attempt.waits_for_disk for attempt in self._running.values()
        )

    def _on_connected(self) -> None:
        """Send what a new link needs: the greeting, running attempts, and results without a receipt."""
        self._manager.status("serving; connected to the farm")
        self._greet()
        for attempt in self._running.values():
            attempt.report_again()
        for result in self._journal.spooled():
            self._send_result(result)

    def _greet(self) -> None:
        """Say which devices there are, with the newest epoch of each, and which attempts run."""
        self._link.send(
            wire.AgentHello(
                protocol=wire.PROTOCOL_VERSION,
                agent_id=self._config.agent_id,
                host=socket.gethostname(),
                version=version("delegate-farm"),
                devices=tuple(self._devices.values()),
                missing=self._missing,
                live=tuple(name for attempt in self._running.values() for name in attempt.live),
                epochs=self._journal.epochs(),
            )
        )

    def _send_result(self, result: wire.JobResult) -> None:
        """Send a result and note when, so that it is sent again without a receipt."""
        self._sent_s[result.attempt_id] = time.monotonic()
        self._link.send(result)

    def _send_alive(self) -> None:
        """In a lab: send the agent's own heartbeat when due, and each result without a receipt again."""
        now_s = time.monotonic()
        if self._config.resend_s is None or now_s < self._alive_due_s:
            return
        self._alive_due_s = now_s + self._config.heartbeat_s
        self._link.send(wire.AgentAlive(waiting=len(self._sent_s), clock_ns=time.time_ns()))
        late = {name for name, sent_s in self._sent_s.items() if now_s - sent_s >= self._config.resend_s}
        if late:
            for result in self._journal.spooled():
                if result.attempt_id in late:
                    self._send_result(result)

    def _end(self, why: str) -> None:
        """Begin a shutdown: running attempts end as `interrupted` first."""
        if self._ending_because is None:
            self._ending_because = why
            for attempt in self._running.values():
                attempt.apply(lifecycle.ShutdownAsked(time.monotonic(), why))

    def _wait(self, signals: WakingSignals) -> None:
        """Sleep until something happens or something is due; receive messages."""
        # Made anew: the link's descriptor changes with each link, and what to wait for with its backlog.
        with selectors.PollSelector() as selector:
            selector.register(signals, selectors.EVENT_READ)
            if self._connected and self._link.fileno() >= 0:
                writing = selectors.EVENT_WRITE if self._link.has_backlog else 0
                selector.register(self._link, selectors.EVENT_READ | writing)
            ready = selector.select(self._pause_s())
        for key, events in ready:
            if key.fileobj is signals:
                signals.clear()
                continue
            if events & selectors.EVENT_WRITE:
                self._link.flush()
            if events & selectors.EVENT_READ:
                self._connected = self._receive()

    def _pause_s(self) -> float | None:
        """Return the seconds until something is due; None: nothing is."""
        pauses = [self._manager.interval_s]
        if self._connected:
            pauses.append(self._link.pause_s())
        if any(attempt.waits_for_device for attempt in self._running.values()):
            pauses.append(_LEASE_POLL_S)
        elif self._running:
            pauses.append(min(self._config.heartbeat_s, _PROGRESS_POLL_S))
        if self._config.resend_s is not None:
            pauses.append(max(0.0, self._alive_due_s - time.monotonic()))
        return min((pause for pause in pauses if pause is not None), default=None)

    def _receive(self) -> bool:
        """Act on the messages that have arrived; return False where no more will come."""
        try:
            lines = self._link.receive()
            messages = None if lines is None else [wire.decode_for_agent(line) for line in lines]
        except (TransportError, ValueError) as error:
            # From a parent only: the link of a lab passes nothing on that is no message.
            log.warning("a message from the orchestrator is not understood: %s", error)
            self._exit_code = 1
            messages = None
        if messages is None:
            self._end("the orchestrator went away")
            return False
        for message in messages:
            self._on_command(message)
        return True

    def _on_command(self, message: wire.ForAgent) -> None:
        match message:
            case wire.JobSpec():
                self._on_job(message)
            case wire.CancelJob(attempt_id=attempt_id):
                for attempt in self._running.values():
                    if attempt_id in attempt.live:
                        attempt.cancel(attempt_id)
            case wire.Receipt(attempt_id=attempt_id):
                failpoint.reached("agent.before_receipt")
                # On a full disk the result stays, is sent again, and has another receipt.
                with contextlib.suppress(NoRoomError):
                    self._journal.delivered(attempt_id)
                    # A result that was sent twice has two receipts.
                    self._sent_s.pop(attempt_id, None)
            case wire.Shutdown():
                self._end("the farm was stopped")
            case wire.Upgrade(protocol=protocol, command=command):
                log.error(
                    "this agent speaks protocol %d, the farm %d; run: %s",
                    wire.PROTOCOL_VERSION,
                    protocol,
                    command,
                )
                self._end("the agent speaks another protocol than the farm")
                self._exit_code = UPGRADE_EXIT

    def _on_job(self, job: wire.JobSpec) -> None:
        """Accept a job, or refuse it with the reason; a repeated job is answered and does not run again."""
        if job.attempt_id in self._running:
            self._running[job.attempt_id].report_again()
            return
        states = {own.attempt_id: self._journal.state_of(own.attempt_id) for own in job.attempts}
        # The attempts of one job are journaled together: all of them are known, or none.
        if not any(states.values()):
            self._on_new_job(job)
        for result in self._journal.spooled():
            if states.get(result.attempt_id) == "spooled":
                self._send_result(result)
        for own in job.attempts:
            if states[own.attempt_id] == "delivered":
                text = f"attempt {own.attempt_id} has already ended here"
                self._refuse(own, RefusedError(wire.ReasonCode.RUNNER_ERROR, text))

    def _on_new_job(self, job: wire.JobSpec) -> None:
        try:
            if self._ending_because is not None:
                raise RefusedError(wire.ReasonCode.INTERRUPTED, self._ending_because)
            attempt = admit(job, self._config, self._devices, self._journal)
            failpoint.reached("agent.before_journal")
            # Journaled first: a running job that is not in the journal after a crash could run twice.
            self._journal.accept(job)
        except RefusedError as refusal:
            self._refuse(job, refusal)
        except NoRoomError as error:
            self._refuse(job, RefusedError(wire.ReasonCode.DEVICE_LOST, str(error.strerror)))
        else:
            self._running[job.attempt_id] = attempt

    def _refuse(self, job: wire.JobSpec, refusal: RefusedError) -> None:
        reason = wire.Reason(code=refusal.code, text=str(refusal))
        if refusal.code is wire.ReasonCode.INTERRUPTED and self._ending_because is None:
            # A farm whose database was restored hands out old epochs until it learns the newest ones.
            self._greet()
        for own in job.attempts:
            self._link.send(wire.JobRefused(attempt_id=own.attempt_id, epoch=own.epoch, reason=reason))

    def _advance(self) -> None:
        """Apply signals, elapsed time and exits to every attempt; send the resulting messages."""
        for attempt in list(self._running.values()):
            if not attempt.ended:
                attempt.advance()
            for message in attempt.outbox:
                self._link.send(message)
            attempt.outbox.clear()
            self._deliver(attempt)

    def _deliver(self, attempt: RunningAttempt) -> None:
        """Send the results, which are in the journal; once all have ended, free the devices and the folders.

        In this order: a crash before the journal entry finds the result file, one after it finds the entry;
        a device that is free before the result is safe could begin the next job and lose this one.
        """
        results, attempt.results = attempt.results, []
        for result in results:
            self._send_result(result)
            failpoint.reached("agent.after_send")
            self._compare(result, attempt.job_of(result.attempt_id))
        if not attempt.ended:
            return
        del self._running[attempt.job.attempt_id]
        # Children, but no orphans: the runners of other attempts, and the link.
        children = [other.runner_pid for other in self._running.values()] + [self._link.pid]
        marks = [other.mark for other in self._running.values()]
        # The devices are locked until then: whoever left the attempt under another's name computes on them.
        kill_strays(strays(marks, [pid for pid in children if pid is not None]))
        attempt.release()

    def _compare(self, result: wire.JobResult, job: wire.JobSpec) -> None:
        """Have the devices listed again where a finished measurement found one otherwise than its list has
        it: what a runner says counts for its own result alone.
        """
        device = self._devices.get(result.device_id)
        if device is not None and result.status is wire.Status.DONE and result.environment:
            expected = device.environment_of(job.delegate_kind, job.delegate_options)
            self._must_look |= result.environment != expected

    def _look_again(self) -> None:
        """List the devices anew, and greet with what has changed of those that are known."""
        self._must_look, self._look_due_s = False, time.monotonic() + _LOOK_EVERY_S
        try:
            report = self._config.probed()
        except (ProbeError, OSError) as error:
            log.warning("the devices cannot be listed again: %s", error)
            return
        named = (self._config.named(device) for device in report.devices)
        changed = {
            device.device_id: device
            for device in named
            if device.device_id in self._devices and device != self._devices[device.device_id]
        }
        if changed:
            self._devices |= changed
            self._greet()


def serve(config: AgentConfig, descriptor: int) -> int:
    """Serve an orchestrator at the other end of a connected socket. Returns the exit code."""
    return serve_over(config, lambda: SocketLink(descriptor))


def serve_over(config: AgentConfig, connect: Callable[[], Transport]) -> int:
    """Lock `config.state` for this agent alone, list the devices, serve the link. Returns the exit code."""
    try:
        _require_waiting()
        _require_open_files()
        private_folder(config.state)
    except (ExposedError, OSError) as error:
        log.error("%s", error)
        return 1
    try:
        # A former agent may still be ending its runners.
        lock = open_lock(config.lock, wait_s=_PREDECESSOR_PATIENCE_S)
    except BlockingIOError:
        log.error("another agent has been using %s for %.0f s", config.state, _PREDECESSOR_PATIENCE_S)
        return 1
    with lock:
        try:
            config = config.with_wheels()
            return Agent(config, connect(), config.probed()).run()
        # For want of room only at the start, where no attempt runs yet that would end with it: an agent that
        # cannot read and write its journal could run a job twice, or lose a result.
        except sqlite3.Error as error:
            log.error("%s", _about_the_journal(config, error))
        except (ProbeError, OSError) as error:
            log.error("%s", error)
        return 1


def _require_waiting() -> None:
    """Raise `OSError` where Python cannot see the end of a process without giving its number free."""
    if not hasattr(os, "waitid"):
        raise OSError(
            f"this is Python {sys.version_info.major}.{sys.version_info.minor}, which has os.waitid on macOS "
            "from 3.13 on only: install the farm with a newer one"
        )


def _require_open_files() -> None:
    """Let this process open as many files as it needs. Raises `OSError` where it may not."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now >= _LEAST_OPEN_FILES:
        return
    if most < _LEAST_OPEN_FILES:
        raise OSError(
            f"an agent may open {most} files here and needs {_LEAST_OPEN_FILES}: raise the limit "
            "(ulimit -Hn; LimitNOFILE= of its unit), and start it again"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LEAST_OPEN_FILES, most))


def _about_the_journal(config: AgentConfig, error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.OperationalError):
        return f"the journal {config.journal} cannot be used: {error}"
    return (
        f"the journal {config.journal} is damaged ({error}); move it away and start the agent again: the "
        "farm runs the attempts in it once more, and results that it has not confirmed are lost"
    )
