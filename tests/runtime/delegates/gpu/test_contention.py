"""Waiting for cores is seen, with real programs that take them."""

import os
import subprocess
import sys
from time import monotonic

import pytest

from runtime.delegates.gpu.contention import Contention, waited_ns

SECONDS = 0.4


@pytest.mark.skipif(waited_ns() is None, reason="this kernel does not count how long threads wait for a core")
def test_programs_that_take_every_core_are_seen():
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(3 * len(os.sched_getaffinity(0)))
    ]
    try:
        contention, end = Contention(), monotonic() + SECONDS
        while monotonic() < end:
            pass
        assert contention.is_disturbed()
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.parametrize(
    ("waited", "disturbed"), [([0, 0], False), ([5, 10**12], True), ([None, None], False)]
)
def test_the_share_of_waiting_decides(waited, disturbed, monkeypatch):
    readings = iter(waited)
    monkeypatch.setattr("runtime.delegates.gpu.contention.waited_ns", lambda: next(readings))
    assert Contention().is_disturbed() is disturbed
