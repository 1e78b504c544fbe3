"""Servers as children of the test process: killed by the kernel when it dies, however it dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

READY_LIMIT_S = 60.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """For `preexec_fn`: SIGKILL when the parent's thread ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """A foreground process in a session of its own. `log` takes what it says."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=None if environment is None else dict(environment),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # prctl alone
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def until(self, ready: Callable[[], bool], what: str, limit_s: float = READY_LIMIT_S) -> None:
        """Wait for `ready`; fails with the end of the log where the process ends or the time is over."""
        deadline = time.monotonic() + limit_s
        while not ready():
            if not self.running or time.monotonic() > deadline:
                raise AssertionError(f"{what}: {self.command[0]} {self.process.poll()}\n{self.tail()}")
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP: the kernel keeps its sockets open, and nobody answers."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def end(self, limit_s: float = READY_LIMIT_S) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(limit_s)

    def stop(self, number: signal.Signals = signal.SIGTERM, limit_s: float = READY_LIMIT_S) -> int:
        """Ask it to end; what is still there after `limit_s` is killed."""
        self.send(number)
        self.resume()
        try:
            return self.end(limit_s)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """SIGKILL to its whole session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.end()

    def tail(self, limit: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-limit:]
