"""Handles Ctrl-C, `kill` and a closed terminal in one way, and names the command that continues."""

import os
import shlex
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

AGAIN_S: Final = 0.05
"""Seconds until a signal whose exception Python discarded is sent again: by then the callback in which it was
discarded has returned, and nobody notices the delay.
"""


class StoppedError(KeyboardInterrupt):
    """A signal stopped this command."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP raise `StoppedError`; ignored signals stay ignored.

    Python discards an exception that is raised in a destructor or in the callback of a weak reference, which
    the database's library uses often. A signal that arrives there is sent again.
    """
    # `nohup` starts a command with SIGHUP ignored: the command must not end with the terminal then.
    watched = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, _stop) for number in watched}
    report = sys.unraisablehook

    def again(discarded: "sys.UnraisableHookArgs") -> None:
        if isinstance(discarded.exc_value, StoppedError):
            number = discarded.exc_value.number
            threading.Timer(AGAIN_S, os.kill, (os.getpid(), number)).start()
        else:
            report(discarded)

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)


def same_command(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return this process's command line (`sys.argv`) for a shell, with the farm's folder if it is set."""
    program = arguments[0] if Path(arguments[0]).name == "farm" else "farm"
    found = shutil.which("farm", path=environment.get("PATH", ""))
    # The bare name, where a shell would start this very program by it.
    if found is not None and Path(program).exists() and Path(found).samefile(program):
        program = "farm"
    home = environment.get("FARM_HOME")
    words = shlex.join([program, *arguments[1:]])
    return f"FARM_HOME={shlex.quote(home)} {words}" if home else words


def _stop(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        _leave_terminal()
    raise StoppedError(number)


def _leave_terminal() -> None:
    """Discard all output from now on: the terminal is closed, and writing to it would fail."""
    for stream in (sys.stdout, sys.stderr):
        descriptor = stream.fileno()
        # Output into a file or a pipe is still wanted: only the terminal is gone.
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
