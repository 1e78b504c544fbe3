"""The link to a lab: a child process that uses the broker, restarted when it ends or hangs.

The daemon never uses the broker itself. The child (`agent.link`) may die, hang in a reconnection or lose what
it holds: it is killed and started again, and the daemon repeats every message that is still relevant.
"""

import contextlib
import logging
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.processes.environment import for_link
from agent.processes.left_files import LOG_FILE
from agent.processes.supervisor import Launch, start
from agent.transport.socket import SocketLink, TransportError
from agent.wire.bounded import Wire

ALIVE: Final = b'{"type":"link-alive"}'
"""Line from the child when one of its pings has made the round trip through the broker."""
REFUSED_EXIT: Final = 77
"""Exit code of a child whose credentials the broker refuses (EX_NOPERM of sysexits.h)."""
NAME_TAKEN_EXIT: Final = 78
"""Exit code of a child whose name another machine has claimed."""

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.5
"""Seconds before a lost link is replaced; each further pause is twice as long until a link comes to life."""
_LONGEST_PAUSE_S: Final = 30.0
"""Longest such pause in seconds: how late an agent can be after the broker is back. Smaller means more logins
at a broker that refuses them."""
_JITTER: Final = (0.75, 1.25)
"""Each pause is multiplied by a random number of this range, so that the agents of a lab do not all return at
once."""
_WAKE_MARGIN_S: Final = 0.01
"""Seconds added to each pause, so that `tend` runs after its deadline and not just before it."""


class LinkProcess:
    """Keeps one link alive. `command` gets `--fd N` appended."""

    def __init__(self, command: Sequence[str], folder: Path, watchdog_s: float, agent_id: str) -> None:
        """Nothing is started before the first `tend`. `folder` receives the child's log."""
        self._agent_id = agent_id
        self._refused = False
        self._command = list(command)
        self._folder = folder
        self._watchdog_s = watchdog_s
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: SocketLink | None = None
        self._alive_s = 0.0
        self._start_at_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return None if self._child is None else self._child.pid

    @property
    def has_backlog(self) -> bool:
        """True while something waits to be sent."""
        return self._socket is not None and self._socket.has_backlog

    def fileno(self) -> int:
        """Return the descriptor of the socket to the child; negative while there is none."""
        return -1 if self._socket is None else self._socket.fileno()

    def send(self, message: Wire) -> None:
        """Send to the child; without one the message is dropped, since a new link gets everything anyway."""
        if self._socket is not None:
            self._socket.send(message)

    def flush(self) -> None:
        """Send as much of the queue as fits."""
        if self._socket is not None:
            self._socket.flush()

    def receive(self) -> list[bytes] | None:
        """Return lines for the daemon. The end of the stream only means that the child has to be replaced."""
        if self._socket is None:
            return []
        try:
            lines = self._socket.receive()
        except TransportError as error:
            self._drop(str(error))
            return []
        if lines is None:
            self._drop("it ended")
            return []
        if ALIVE in lines:
            self._on_alive()
        return [line for line in lines if line != ALIVE]

    def tend(self) -> bool:
        """Replace a child that ended; kill one whose pings do not come back."""
        now_s = time.monotonic()
        if self._child is not None:
            if now_s - self._alive_s > self._watchdog_s:
                self._drop(f"no ping came back through the broker for {self._watchdog_s:g} s")
            return False
        if now_s < self._start_at_s:
            return False
        try:
            self._start()
        except OSError as error:
            # Memory, descriptors and room on a disk come back: the attempts go on meanwhile.
            self._drop(f"it cannot be started: {error}")
            return False
        return True

    def pause_s(self) -> float | None:
        """Seconds until the watchdog expires, or until the next start."""
        due_s = self._start_at_s if self._child is None else self._alive_s + self._watchdog_s
        return max(0.0, due_s - time.monotonic()) + _WAKE_MARGIN_S

    def close(self, drain_s: float = 0.0) -> None:
        """Let the child send what it has for `drain_s` seconds at most, then kill it."""
        if self._child is None or self._socket is None:
            return
        self._socket.end_writing(drain_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(drain_s)
        self._kill()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._socket = SocketLink(ours.detach())
        # Closed here once the child has it: only then does the end of the child end the stream.
        with theirs:
            self._child = start(
                Launch(
                    command=[*self._command, "--fd", str(theirs.fileno())],
                    environment=for_link(),
                    folder=self._folder,
                    inherited=(theirs.fileno(),),
                    # Its session is a process group, too, which `_kill` ends as a whole.
                    new_session=True,
                )
            )
        # A new child has the whole watchdog time for its first ping.
        self._alive_s = time.monotonic()

    def _on_alive(self) -> None:
        self._alive_s = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S
        if self._refused:
            log.warning("the broker lets agent %s in again", self._agent_id)
        self._refused = False

    def _drop(self, why: str) -> None:
        """Kill the child and plan the next start. The pause grows as long as no link comes to life."""
        code = self._kill()
        pause_s = self._pause_s * random.uniform(*_JITTER)  # noqa: S311  # jitter
        self._start_at_s = time.monotonic() + pause_s
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        if code in (REFUSED_EXIT, NAME_TAKEN_EXIT):
            self._log_refused(code)
            return
        exit_code = f" (exit code {code})" if code > 0 else ""
        log.warning(
            "the link to the broker is restarted in %.1f s: %s%s; its log: %s",
            pause_s, why, exit_code, self._folder / LOG_FILE,
        )  # fmt: skip

    def _log_refused(self, code: int) -> None:
        """Log the reason and the cure once, however often the login is tried again."""
        if not self._refused and code == NAME_TAKEN_EXIT:
            log.error(
                "another machine serves as agent %s: results of both would look like one machine's. Give "
                "this one a name of its own; on the server: farm lab agents enrol NAME; then here: "
                "farm-agent enrol --server URL, the token in FARM_ENROL_TOKEN. This agent tries again by "
                "itself, in case the other one ends; log of its link: %s",
                self._agent_id, self._folder / LOG_FILE,
            )  # fmt: skip
        elif not self._refused:
            log.error(
                "the broker refuses agent %s: it was revoked, or its secrets have expired. Its results are "
                "kept here. To admit it again, on the server: farm lab agents enrol %s; then here: "
                "farm-agent enrol --server URL, the token in FARM_ENROL_TOKEN. This agent tries again by "
                "itself, at most every %.0f s (a broker that only lost its users gets them back from "
                "`farm lab serve`); log of its link: %s",
                self._agent_id, self._agent_id, _LONGEST_PAUSE_S, self._folder / LOG_FILE,
            )  # fmt: skip
        self._refused = True

    def _kill(self) -> int:
        """Return the child's exit code; 0 where none could be started."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._child is None:
            return 0
        code = self._child.poll()
        if code is None:
            # The whole process group: nothing that the link started may outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            code = self._child.wait()
        self._child = None
        return code
