"""Runs this machine's agent as a child process, with messages as JSON lines over a socket pair."""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.wire import messages
from agent.wire.bounded import Wire
from agent.wire.environment import for_agent
from orchestrator.config.home import FarmHome
from orchestrator.dispatch.base import AgentLost, DispatchEvent, MessageReceived, unusable_result
from orchestrator.errors import UnreachableError

MAX_STARTS: Final = 5
"""Agents that may be started in a row without one taking a job; then the farm gives up. Chosen: the farm
survives a driver that crashes at times, and reports a broken installation within seconds."""

SILENCE_LIMIT_S: Final = 60.0
"""Seconds of silence after which an agent that has a job, or has not sent its hello, counts as stuck.
Heartbeats come every second; smaller would kill an agent on a machine that is short of memory."""

_SEND_LIMIT_S: Final = 10.0
"""Seconds that one message to the agent may take; an agent that does not read for so long is replaced."""
_READ_BYTES: Final = 1 << 20
"""Bytes read from the agent at once. Any size works: lines are joined across reads."""
_LOG_TAIL_BYTES: Final = 2000
"""Bytes of the agent's log that an error message quotes: about the last 25 lines."""
_RESTART_PAUSE_S: Final = 0.1
"""Seconds that each start waits longer than the one before it, so that a short shortage can pass."""
_CLOSE_POLL_S: Final = 0.5
"""Longest wait in seconds for one message at the end; it bounds how late the agent's end is noticed."""
_EXIT_PATIENCE_S: Final = 2.0
"""Seconds that an agent which closed its connection has to exit; later, no exit code is reported."""


def agent_command(home: FarmHome) -> list[str]:
    """Return the command that starts the embedded agent; `--embedded --fd N` is appended."""
    # Not -I: the agent imports what this process does, which PYTHONPATH or the user's packages may hold.
    state, store = home.agent.absolute(), home.store.absolute()
    return [sys.executable, "-P", "-m", "agent", "--state", str(state), "--store", str(store)]


class EmbeddedDispatcher:
    """One child agent in a session of its own. An agent that ends is replaced, at most `MAX_STARTS` times."""

    sole_agent = True

    def __init__(
        self, command: Sequence[str], log: Path, *, silence_limit_s: float = SILENCE_LIMIT_S
    ) -> None:
        """Start the agent in the folder of `log`, which takes its stderr. Raises `UnreachableError`."""
        self._command = list(command)
        self._log = log
        self._silence_limit_s = silence_limit_s
        self._starts = 0
        self._pending: list[DispatchEvent] = []
        self._start()

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._child.pid

    @property
    def fault(self) -> str:
        """Empty: there is no broker that could be down."""
        return ""

    def send(self, agent_id: str, message: messages.ForAgent) -> None:  # noqa: ARG002  # there is one agent
        """Send a message to the agent."""
        if isinstance(message, messages.JobSpec):
            self._jobs |= {own.attempt_id for own in message.attempts}
            # An idle agent sends nothing, so that its silence counts from its job on.
            self._last_message_s = time.monotonic()
        self._send(message)

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """Return what has arrived. Raises `UnreachableError` when agents end again and again."""
        if not self._pending:
            self._receive(timeout_s)
        found, self._pending = self._pending, []
        if any(isinstance(event, AgentLost) for event in found):
            self._restart(found)
        return found

    def received(self) -> Sequence[DispatchEvent]:
        """Return what has arrived, which the next `events` returns too. Raises `UnreachableError` where the
        agent is lost, which only `events` replaces.
        """
        if not self._pending:
            self._receive(0.0)
        if self._lost():
            raise UnreachableError("the embedded agent ended")
        return tuple(self._pending)

    def hear_again(self, events: Sequence[DispatchEvent]) -> None:
        """Have the next `events` return these first, which it has returned already."""
        self._pending[:0] = events

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:
        """Send `Shutdown`, receive until the agent has ended or `grace_s` has passed, then kill it."""
        try:
            self._send(messages.Shutdown())
            until = time.monotonic() + grace_s
            while not self._lost() and time.monotonic() < until:
                self._receive(min(_CLOSE_POLL_S, max(0.0, until - time.monotonic())))
        finally:
            self._kill()
        found, self._pending = self._pending, []
        return [event for event in found if not isinstance(event, AgentLost)]

    def _start(self) -> None:
        self._starts += 1
        self._buffer = b""
        self._jobs: set[str] = set()
        self._hello_received = False
        self._agent_id = ""
        self._last_message_s = time.monotonic()
        ours, theirs = socket.socketpair()
        # A limit for sends alone: `select` says when there is something to receive.
        ours.settimeout(_SEND_LIMIT_S)
        self._link = ours
        try:
            # A session of its own: Ctrl-C in the terminal reaches this process alone, which ends the agent.
            # This process closes its copy of the agent's end at once: only then does the agent's end close
            # the connection.
            with theirs, self._log.open("ab") as log:
                descriptor = theirs.fileno()
                self._child = subprocess.Popen(  # noqa: S603  # a fixed command: our own agent
                    [*self._command, "--embedded", "--fd", str(descriptor)],
                    env=for_agent(),
                    cwd=self._log.parent,
                    pass_fds=(descriptor,),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise UnreachableError(f"the embedded agent cannot be started: {error}") from error

    def _restart(self, found: Sequence[DispatchEvent]) -> None:
        reason = next(event.reason for event in found if isinstance(event, AgentLost))
        self._kill()
        if self._starts >= MAX_STARTS:
            raise UnreachableError(
                f"the embedded agent ended {self._starts} times in a row ({reason}); "
                f"its log {self._log} ends with:\n{self._log_tail()}"
            )
        time.sleep(_RESTART_PAUSE_S * (self._starts - 1))
        self._start()

    def _send(self, message: Wire) -> None:
        try:
            self._link.sendall(messages.encode(message))
        except OSError as error:
            self._mark_lost(f"it does not receive messages: {error}")

    def _receive(self, timeout_s: float) -> None:
        readable, _, _ = select.select([self._link], [], [], timeout_s)
        if not readable:
            awaited = self._jobs or not self._hello_received
            if awaited and time.monotonic() - self._last_message_s > self._silence_limit_s:
                self._mark_lost(f"it sent nothing for {self._silence_limit_s:g} s")
            return
        try:
            data = self._link.recv(_READ_BYTES)
        except OSError as error:
            self._mark_lost(str(error))
            return
        self._last_message_s = time.monotonic()
        if not data:
            self._mark_lost(self._exit_reason())
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_message(line)
        if len(self._buffer) > messages.MAX_MESSAGE_BYTES:
            self._mark_lost(f"it sent more than {messages.MAX_MESSAGE_BYTES} bytes without a line end")

    def _on_message(self, line: bytes) -> None:
        try:
            message: messages.ForOrchestrator = messages.decode_for_orchestrator(line)
        except ValueError as error:
            self._on_unreadable(line, error)
            return
        if isinstance(message, messages.AgentHello):
            if message.protocol != messages.PROTOCOL_VERSION:
                # A replacement would speak the same.
                raise UnreachableError(
                    f"the agent speaks protocol {message.protocol}, this farm speaks "
                    f"{messages.PROTOCOL_VERSION}; install the same version of both"
                )
            self._hello_received = True
            self._agent_id = message.agent_id
        elif isinstance(message, messages.JobStarted | messages.JobResult | messages.JobRefused):
            # This agent works, and is the first of a new row.
            self._starts = 1
        if isinstance(message, messages.JobResult | messages.JobRefused):
            self._jobs.discard(message.attempt_id)
        self._pending.append(MessageReceived(self._agent_id, message))

    def _on_unreadable(self, line: bytes, error: ValueError) -> None:
        """Replace an agent that writes nonsense. A result that is not valid ends its attempt instead:
        the next agent would only send it again.
        """
        try:
            event = unusable_result(self._agent_id, line, str(error))
        except (ValueError, RecursionError):
            self._mark_lost(f"it sent something unreadable: {error}")
            return
        self._jobs.discard(event.attempt_id)
        self._pending.append(event)

    def _mark_lost(self, reason: str) -> None:
        """Note the first reason only: later failures are its consequences."""
        if not self._lost():
            self._pending.append(AgentLost(reason))

    def _lost(self) -> bool:
        return any(isinstance(event, AgentLost) for event in self._pending)

    def _exit_reason(self) -> str:
        try:
            code = self._child.wait(timeout=_EXIT_PATIENCE_S)
        except subprocess.TimeoutExpired:
            return "it closed the connection"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _kill(self) -> None:
        """Kill the agent's session; its runners, in sessions of their own, die with it (PR_SET_PDEATHSIG)."""
        self._link.close()
        if self._child.poll() is None:
            try:
                os.killpg(self._child.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._child.kill()
        self._child.wait()

    def _log_tail(self) -> str:
        with self._log.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or "(empty)"
