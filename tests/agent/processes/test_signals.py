"""Signals wake a loop that waits in a selector, and are never lost while it does something else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, select, signal
from agent.processes.signals import WakingSignals

def waits(signals, seconds):
    return bool(select.select([signals], [], [], seconds)[0])

with WakingSignals() as signals:
    assert not waits(signals, 0)
    if os.fork() == 0:
        os._exit(0)
    assert waits(signals, 30), "the end of a child wakes"
    signals.clear()
    assert not waits(signals, 0) and not signals.terminated
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    assert signals.terminated and waits(signals, 0), "a signal before the wait is not lost"
    signals.clear()
    signals.clear()
print("served on")
"""


def test_child_ends_and_sigterm_wake_the_loop_and_sigint_is_ignored() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "served on\n"), ran.stderr
