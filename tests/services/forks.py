"""Our programs as processes of their own that skip the start of Python.

    from tests.services.forks import Program, run
    done = run("farm", "status", "--json", cwd=folder, env=environment)  # subprocess.CompletedProcess[str]
    serving = Program("farm", ["lab", "serve"], folder / "serve.log", environment)  # a `Server`

A program that is started afresh imports for a second before it does anything, and the tests start `farm` some
hundred times. Here one process per session of pytest has imported all of our programs (`fork_server`); a fork
of it gets the arguments, the environment, the working directory and the standard files that a new process
would get, calls the entry point, and ends as any Python process does. What matters before an entry point is
called (the interpreter's own variables and paths, what is imported when) is tested with `subprocess.run`.
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
from typing import IO, Any

from tests.needs import REPOSITORY
from tests.services.fork_server import MOST_BYTES
from tests.services.processes import Server

Files = tuple[IO[Any], IO[Any], IO[Any]]
"""Standard input, output and error."""


class Fork:
    """A running program, with those methods of `subprocess.Popen` that a `Server` uses.

    The first word of the command is the name of a program, or the function to call as `module:function`. The
    kernel kills it when the test process dies. With `session` it leads a session of its own.
    """

    def __init__(
        self,
        command: Sequence[str],
        files: Files,
        cwd: Path,
        environment: Mapping[str, str],
        *,
        session: bool = False,
    ) -> None:
        self.args = list(command)
        self.returncode: int | None = None
        self._told, telling = os.pipe()
        request = {"argv": self.args, "cwd": str(cwd), "env": dict(environment), "session": session}
        descriptors = [*(file.fileno() for file in files), telling]
        socket.send_fds(_server(), [json.dumps(request).encode()], descriptors)
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

    def _read(self) -> None:
        """Read what the process that watches the program tells: the program's id, then how it ended."""
        part = os.read(self._told, 64)
        assert part, f"{self.args}: the process that watches it is gone"
        self._text += part
        if self._text.count(b"\n") == 2:
            self.returncode = os.waitstatus_to_exitcode(int(self._text.split(b"\n")[1]))
            os.close(self._told)


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
        made = Fork(command, (nothing, out, err), cwd, env)
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
            self.process = Fork(self.command, (nothing, out, out), Path.cwd(), environment, session=True)


_servers: list[socket.socket] = []
_starting = threading.Lock()


def _server() -> socket.socket:
    """Return the socket to this process's fork server, which is started with its first use."""
    with _starting:
        if not _servers:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
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
