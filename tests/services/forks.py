"""Our programs as processes of their own that skip the start of Python.

    from tests.services.forks import AGENTS, Program, run
    done = run("farm", "status", "--json", cwd=folder, env=environment)  # subprocess.CompletedProcess[str]
    serving = Program("farm", ["lab", "serve"], folder / "serve.log", environment)  # a `Server`
    monkeypatch.setattr(embedded, "subprocess", AGENTS)  # agents of farms that this process opens

A program that is started afresh imports for a second before it does anything, and the tests start `farm` some
hundred times. Here one process per session of pytest has imported all of our programs (`fork_server`); a fork
of it gets the arguments, the environment, the working directory and the standard files that a new process
would get, calls the entry point, and ends as any Python process does. So are the agents that such a program
starts. What matters before an entry point is called (the interpreter's own variables and paths, what is
imported when) is tested with `subprocess.run`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agent.wire import failpoint
from tests.needs import REPOSITORY
from tests.services.processes import Server

MOST_BYTES = 1 << 18
"""The longest request in bytes, mostly the environment. Chosen: several times what the tests send. A longer
one is refused where it is sent.
"""

Files = tuple[int, int, int]
"""Descriptors of standard input, output and error."""

_AFRESH = frozenset({"PYTHONPATH", failpoint.VARIABLE})
"""Variables that are read before an entry point is called: a program that has one cannot be a fork."""


def starts_afresh(environment: Mapping[str, str]) -> bool:
    """Whether a program with this environment has to be a new process."""
    return not _AFRESH.isdisjoint(environment)


class Fork:
    """A running program, with those methods of `subprocess.Popen` that a `Server` uses.

    The first word of the command is the name of a program, or the function to call as `module:function`. The
    kernel kills it when the test process dies. With `session` it leads a session of its own. It inherits
    `descriptors`, whose numbers there are appended to the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        files: Files,
        cwd: Path,
        environment: Mapping[str, str],
        *,
        session: bool = False,
        descriptors: Sequence[int] = (),
    ) -> None:
        self.args = list(command)
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        request = {"argv": self.args, "cwd": str(cwd), "env": dict(environment), "session": session}
        request["umask"] = _umask()
        socket.send_fds(_server(), [json.dumps(request).encode()], [*files, telling, *descriptors])
        os.close(telling)
        self._text = b""
        while b"\n" not in self._text:
            self._read()
        self.pid = int(self._text.split(b"\n")[0])

    def poll(self) -> int | None:
        """Return the exit code, or the negative number of the signal that ended it; None while it runs."""
        while self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the code as `poll`. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([self._told], [], [], left)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._read()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> None:
        """Read what the process that watches the program tells: the program's id, then how it ended."""
        part = os.read(self._told, 64)
        assert part, f"{self.args}: the process that watches it is gone"
        self._text += part
        if self._text.count(b"\n") == 2:
            self.returncode = os.waitstatus_to_exitcode(int(self._text.split(b"\n")[1]))
            os.close(self._told)


def _umask() -> int:
    """Return the mask of modes of this process; `os.umask` would change it for a moment, for every thread."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    (mask,) = (line.removeprefix("Umask:") for line in lines if line.startswith("Umask:"))
    return int(mask, 8)


def run(
    program: str, *arguments: str | Path, cwd: Path, env: Mapping[str, str], timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with nothing to read. Raises `subprocess.TimeoutExpired`."""
    command = [program, *map(str, arguments)]
    with (
        Path(os.devnull).open("rb") as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        made = Fork(command, (nothing.fileno(), out.fileno(), err.fileno()), cwd, env)
        try:
            code = made.wait(timeout)
        except BaseException:
            made.send_signal(signal.SIGKILL)
            made.wait()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())


class Program(Server):
    """One of our programs as a `Server`, in the current folder."""

    def __init__(
        self, program: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.command = [program, *arguments]
        self.log = log
        with Path(os.devnull).open("rb") as nothing, log.open("ab") as out:
            files = (nothing.fileno(), out.fileno(), out.fileno())
            self.process = Fork(self.command, files, Path.cwd(), environment, session=True)


def _start_agent(command: Sequence[str], **given: Any) -> Fork | subprocess.Popen[bytes]:
    """Start an agent as `orchestrator.dispatch.embedded` does by `subprocess.Popen`.

    A fork stands for `python -m MODULE ARGUMENTS... DESCRIPTOR`: it calls `main` of that module.
    """
    if "-m" not in command or starts_afresh(given["env"]):
        return subprocess.Popen(command, **given)
    module, *arguments, _ = command[command.index("-m") + 1 :]
    entry = "agent.__main__:main" if module == "agent" else f"{module}:main"
    with Path(os.devnull).open("rb") as nothing:
        files = (nothing.fileno(), given["stdout"].fileno(), given["stderr"].fileno())
        return Fork(
            [entry, *arguments],
            files,
            given["cwd"],
            given["env"],
            session=True,
            descriptors=given["pass_fds"],
        )


AGENTS = SimpleNamespace(
    Popen=_start_agent, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
)
"""What stands for `subprocess` where a farm starts its agent."""


def channel() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a way to ask for forks: where one asks, and where requests arrive."""
    asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    return asking, asked


_servers: list[socket.socket] = []
_starting = threading.Lock()


def ask_at(server: socket.socket) -> None:
    """Have this process ask there for its forks, instead of starting a server of its own."""
    _servers.append(server)


def _server() -> socket.socket:
    """Return the socket to this process's fork server, which is started with its first use."""
    with _starting:
        if not _servers:
            ours, theirs = channel()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.services.fork_server", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    cwd=REPOSITORY,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            atexit.register(_end, ours, process)
            _servers.append(ours)
        return _servers[0]


def _end(server: socket.socket, process: subprocess.Popen[bytes]) -> None:
    server.close()
    process.wait()
