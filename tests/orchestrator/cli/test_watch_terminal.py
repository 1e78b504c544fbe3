"""`farm status --watch` on a terminal: devices with what they do, the cells that come next, and when."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import suppress

from orchestrator.db.engine.sessions import Database
from orchestrator.scheduling.lock import SchedulerLock
from tests.orchestrator.asked import CPU, POCL, asked
from tests.orchestrator.cli.conftest import FARM, Shell
from tests.orchestrator.stocked import cells, dispatch, stock

PATIENCE_S = 60.0
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def test_watch_shows_devices_next_cells_and_when_they_start(shell: Shell, database: Database) -> None:
    stock(database, asked(("first", "second")), (CPU, POCL))
    dispatch(database, cells(database)[0].cell_id)
    waiting = cells(database)[1].cell_id
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    with SchedulerLock.acquire(shell.home / "scheduler.lock"):
        watch = subprocess.Popen(
            [*FARM, "status", "--watch"],
            env=shell.environment | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        text = until(ours, rb"0 of 2 cells")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE_S) == 130
    os.close(ours)
    lines = [line.split() for line in text.decode().splitlines()]
    (busy,) = [line for line in lines if line[:2] == ["host-cpu", "busy"]]
    assert busy[2:5] == ["first", "on", "cpu"]
    assert re.fullmatch(r"\d+:\d\d", busy[-1]), "about how long it will take yet"
    (following,) = [line for line in lines if line[:1] == [waiting]]
    assert following[1:5] == ["second", "on", "cpu", "host-cpu"]
    assert re.fullmatch(r"\d+:\d\d", following[5]), "about when it starts"
    assert " ".join(following[6:]).startswith("host-cpu is busy with attempt")


def until(terminal: int, wanted: bytes) -> bytes:
    """Return the drawing up to the first `wanted`, without control sequences.

    `wanted` belongs to the last line of a screen: a slow reader gets two screens at once.
    """
    deadline, seen = time.monotonic() + PATIENCE_S, b""
    while not (found := re.search(wanted, seen)):
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1.0)[0]:
            with suppress(OSError):
                seen = _CONTROL.sub(b"", seen + os.read(terminal, 65536))
    return seen[: found.end()]
