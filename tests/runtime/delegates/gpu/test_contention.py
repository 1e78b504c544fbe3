"""Waiting for cores is seen, with real programs that take them."""

import hashlib
import os
import subprocess
import sys
import threading
from functools import partial
from time import monotonic

import pytest

from runtime.delegates.gpu.contention import Contention, foreign_ns, waited_ns

SECONDS = 0.4
PATIENCE_S = 60.0


@pytest.mark.skipif(waited_ns() is None, reason="this kernel does not count how long threads wait for a core")
def test_programs_that_take_every_core_are_seen():
    hogs = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(3 * len(os.sched_getaffinity(0)))
    ]
    try:
        is_disturbed, end = False, monotonic() + PATIENCE_S
        while not is_disturbed and monotonic() < end:
            contention = Contention()
            _compute(SECONDS)
            is_disturbed = contention.is_disturbed()
        assert is_disturbed
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@pytest.mark.skipif(foreign_ns() is None, reason="this kernel does not count the use of the cores")
def test_threads_of_this_process_that_wait_for_each_other_are_no_disturbance():
    """As persistent kernels do, which spin on every core while the host's thread waits for one."""
    contention, others, end = Contention(), foreign_ns(), monotonic() + SECONDS
    spinning = [threading.Thread(target=_spin, args=(end,)) for _ in range(2 * len(os.sched_getaffinity(0)))]
    for thread in spinning:
        thread.start()
    for thread in spinning:
        thread.join()
    is_disturbed, used = contention.is_disturbed(), foreign_ns() - others
    # Beside other workers of a test run nothing can be told.
    assert not is_disturbed or used > 0.1 * SECONDS * 1e9


def _compute(seconds):
    end = monotonic() + seconds
    while monotonic() < end:
        pass


def _spin(end):
    # Hashing lets go of Python's lock, so that the threads do compete for the cores.
    block = bytes(1 << 20)
    while monotonic() < end:
        hashlib.sha256(block)


FAR = 10**12


@pytest.mark.parametrize(
    ("waited", "foreign", "disturbed"),
    [
        ([0, 0], [0, FAR], False),
        ([5, FAR], [5, FAR], True),
        ([5, FAR], [5, 5], False),
        ([5, FAR], [None, None], True),
        ([None, None], [0, FAR], False),
    ],
)
def test_waiting_for_others_decides(waited, foreign, disturbed, monkeypatch):
    for name, values in (("waited_ns", iter(waited)), ("foreign_ns", iter(foreign))):
        monkeypatch.setattr(f"runtime.delegates.gpu.contention.{name}", partial(next, values))
    assert Contention().is_disturbed() is disturbed
