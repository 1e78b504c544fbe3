"""Runs commands on an attached device through the system's `ssh` or `adb`: one connection for each command.

Each command ends with a line of its own that has its exit code. Without that line the connection was lost,
whatever the program ended with.
"""

import contextlib
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from agent.attached.hosts import Attached, OverAdb
from agent.processes.environment import for_runner
from agent.processes.exit_reason import last_line

MOST_OUTPUT: Final = 4 << 20
"""Bytes of a command's output that are read. A log of `benchmark_model` has some 4 kB, with a profile of a
large model 1 MB; more would fill the memory."""

_OPTIONS: Final = (
    "BatchMode=yes", "ConnectTimeout=10",
    # Chosen for wireless links, which lose some seconds without harm: after 15 the device has gone.
    "ServerAliveInterval=5", "ServerAliveCountMax=3",
    "ClearAllForwardings=yes", "PermitLocalCommand=no", "RequestTTY=no",
    # Whatever the user's own configuration says: the device gets none of the agent's keys and networks.
    "ForwardAgent=no", "ForwardX11=no", "Tunnel=no",
    # A shared connection would outlive the attempt, and write outside of its folder.
    "ControlMaster=no", "ControlPath=none",
)  # fmt: skip

_PACKAGES: Final = {"ssh": "openssh-client", "adb": "adb"}
"""Packages of Debian and Ubuntu with the programs."""

_END: Final = "delegate-farm: ended with"
_ENDED: Final = re.compile(rf"^{_END} (\d{{1,3}})$", re.MULTILINE)

# A shell gives what it starts with `&` an empty input: descriptor 3 keeps the connection's.
_GUARD: Final = """\
exec 3<&0
{command} </dev/null 3<&- & tool=$!
{{ cat <&3 >/dev/null; kill -9 $tool; }} >/dev/null 2>&1 & guard=$!
wait $tool; code=$?
kill $guard 2>/dev/null
exit $code
"""
"""The connection's end is that of its input, which `cat` waits for: a device that has no terminal goes on
with a command whose connection was lost."""

_ADB_ERROR: Final = re.compile(r"^(adb: )?error: ", re.MULTILINE)


class LostError(Exception):
    """The device cannot be reached, or could not any more; the text says why."""


class LateError(LostError):
    """A command was still running when its time was over, and was ended."""


class RefusedError(Exception):
    """A command ended with an error on the device; the text says which and how."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit code and the output of a command, its errors included, without the line of its end."""

    code: int
    text: str


@dataclass(slots=True)
class Remote:
    """An attached device. One command runs at a time."""

    attached: Attached
    environment: Mapping[str, str] = field(default_factory=for_runner)
    _live: subprocess.Popen[bytes] | None = None

    @property
    def what(self) -> str:
        """The words for it in messages."""
        return f"{self.attached.name} ({self.attached.kind} {self.attached.address})"

    def run(self, script: str, given: BinaryIO | None = None, within_s: float | None = None) -> Answer:
        """Run a script of the POSIX shell, with a file as its input. `within_s`: after so many seconds the
        connection counts as lost; None: only its own probes tell.

        Raises `LateError`, `LostError`, and `RefusedError` for more output than is read.
        """
        # In a subshell: an `exit` in the script must not skip the line of its end.
        process = self._started(f"(\n{script}\n) 2>&1; printf '\\n{_END} %d\\n' $?")
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(within_s or 0.0, process.kill)
        if within_s is not None:
            limit.start()
        # The output is closed before the wait for the end: who goes on writing ends by SIGPIPE.
        with process, contextlib.closing(process.stdout):
            self._live = process
            if given is not None:
                # A script that ends before it has read all tells the reason itself.
                with contextlib.suppress(BrokenPipeError):
                    shutil.copyfileobj(given, process.stdin)
                self.hang_up()
            read = process.stdout.read(MOST_OUTPUT + 1)
            self.hang_up()
        # Asked before `cancel`, which sets it as well.
        is_late = limit.finished.is_set()
        limit.cancel()
        if len(read) > MOST_OUTPUT:
            raise RefusedError(f"{self.what}: a command wrote more than {MOST_OUTPUT >> 20} MiB")
        text = read.decode(errors="replace")
        ends = list(_ENDED.finditer(text))
        if not ends and is_late:
            raise LateError(f"{self.what}: no end within {within_s:.0f} s")
        if not ends:
            raise LostError(f"{self.what}: {self._told(text) or 'the connection ended'}")
        # The last one: a program's own output may have such a line.
        return Answer(int(ends[-1][1]), text[: ends[-1].start()].strip())

    def _told(self, text: str) -> str:
        """Return in one line why a connection was lost; adb explains its errors in several."""
        found = _ADB_ERROR.search(text) if isinstance(self.attached, OverAdb) else None
        return last_line(text if found is None else " ".join(text[found.start() :].split()))

    def run_guarded(self, command: Sequence[str], within_s: float | None = None) -> Answer:
        """Run a program that ends when the connection does. Raises as `run` does."""
        return self.run(_GUARD.format(command=shlex.join(command)), within_s=within_s)

    def need(self, script: str, what: str, given: BinaryIO | None = None) -> str:
        """Run a script that must succeed; return its output. Raises `LostError`, and `RefusedError`."""
        answer = self.run(script, given)
        if answer.code != 0:
            raise RefusedError(f"{self.what}: {what} failed: {last_line(answer.text)}")
        return answer.text

    def put(self, file: Path, target: str) -> None:
        """Copy a file to the device. Raises `LostError`, `RefusedError` and `OSError`."""
        to, size = shlex.quote(target), file.stat().st_size
        # What ends the input is the file's end or a loss.
        script = f'cat >{to} && test "$(wc -c <{to})" -eq {size} || {{ echo "not {size} bytes"; exit 1; }}'
        with file.open("rb") as opened:
            self.need(script, f"copying {file.name}", opened)

    def hang_up(self) -> None:
        """End the input of the command that runs; a guarded one ends with it."""
        if self._live is not None and self._live.stdin is not None:
            # A signal may interrupt this very closing, and then close a second time: a RuntimeError.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                self._live.stdin.close()

    def _started(self, script: str) -> subprocess.Popen[bytes]:
        name, *words = _command(self.attached, script)
        program = shutil.which(name, path=self.environment.get("PATH"))
        if program is None:
            raise LostError(f"{self.what}: this host has no {name}: apt-get install {_PACKAGES[name]}")
        return subprocess.Popen(  # noqa: S603  # the operator chose the host
            [program, *words],
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


def _command(attached: Attached, script: str) -> list[str]:
    """Return the command line that runs a script on a device."""
    if isinstance(attached, OverAdb):
        # Without a terminal the input is bytes, as a model is, and its end reaches the device.
        return ["adb", "-s", attached.serial, "shell", "-T", script]
    config = [] if attached.ssh_config is None else ["-F", attached.ssh_config]
    options = [word for option in _OPTIONS for word in ("-o", option)]
    # Whatever the user's shell is there, the POSIX one reads the script.
    return ["ssh", *config, *options, "--", attached.host, f"exec sh -c {shlex.quote(script)}"]
