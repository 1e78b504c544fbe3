"""Runners that misbehave: `python bad_runners.py KIND JOB.json FOLDER`.

They write process ids to FOLDER/../../notes/pids, which `EmbeddedAgent` lets them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLEEP = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]


def note(folder: Path, pid: int) -> None:
    with (folder.parent.parent / "notes/pids").open("a") as file:
        file.write(f"{pid}\n")


def finish(folder: Path) -> None:
    """Write a result, which is there as a whole or not at all."""
    (folder / "unfinished").write_text('{"status": "done", "reason": null}')
    (folder / "unfinished").rename(folder / "result.json")


def stubborn(folder: Path) -> None:
    """Ignores SIGTERM; has a child, and a grandchild that left the session by a double fork."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(folder, os.getpid())
    note(folder, subprocess.Popen(SLEEP).pid)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note(folder, os.getpid())
            os.execv(SLEEP[0], SLEEP)
        os._exit(0)
    os.wait()
    (folder / "progress").write_text("stubborn")
    time.sleep(600)


def daemon(folder: Path) -> None:
    """End well with a result, but leave a daemon behind that forgot its environment."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note(folder, os.getpid())
            os.execve(SLEEP[0], SLEEP, {})
        os._exit(0)
    os.wait()
    os.close(writing)
    os.read(reading, 1)  # ends once the daemon is another program, which closes its end
    finish(folder)


def daemon_once(folder: Path) -> None:
    """Be `daemon` in the first attempt of an agent; measure for ever in the next."""
    if (folder.parent.parent / "notes/pids").exists():
        time.sleep(600)
    daemon(folder)


def segfault(folder: Path) -> None:
    ctypes.string_at(0)


def hungry(folder: Path) -> None:
    hoard = []
    while True:
        hoard.append(bytearray(64 << 20))


def killed(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raising(folder: Path) -> None:
    raise ValueError("boom \x1b[31m in the runner")


def silent(folder: Path) -> None:
    """End with exit code 0 and no result."""


def garbage(folder: Path) -> None:
    (folder / "result.json").write_text('{"status": "splendid"}')


def liar(folder: Path) -> None:
    """End well, on a machine that is not this one."""
    (folder / "unfinished").write_text(
        '{"status": "done", "reason": null, "environment": {"kernel": "a lie"}}'
    )
    (folder / "unfinished").rename(folder / "result.json")


def late(folder: Path) -> None:
    """Finishes its result, then hangs: the agent may be killed meanwhile."""
    note(folder, os.getpid())
    finish(folder)
    time.sleep(600)


def told(folder: Path) -> None:
    """Prepare a result, and finish it once `notes/told` is there; end at once where it is asked to."""
    facts = {"workload_compute_ns": "1", "workload_copy_ns": "1"}
    (folder / "unfinished").write_text(json.dumps({"status": "done", "reason": None, "facts": facts}))
    (folder / "progress").write_text("ready")
    while not (folder.parent.parent / "notes/told").exists():
        time.sleep(0.02)
    (folder / "unfinished").rename(folder / "result.json")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[3]))
