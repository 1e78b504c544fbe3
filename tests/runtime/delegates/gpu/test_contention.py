"""Work that pauses is seen, whoever has taken the processors."""

import os
import subprocess
import sys
from dataclasses import replace
from time import monotonic

import pytest

from runtime.delegates.gpu.choose.contention import MOST_PAUSED, described, disturbance, paused_share
from runtime.delegates.gpu.planning.assumed import ASSUMED

PATIENCE_S = 60.0
MS = 1_000_000

CASES = {
    "nothing was timed": ([], 0.0),
    "equal times": ([[MS] * 8], 0.0),
    "caches and clocks": ([[MS, MS, MS, 19 * MS // 10]], 0.0),
    "short work that varies": ([[10_000, 10_000, 10_000, 90_000]], 0.0),
    "one turn of another program": ([[MS] * 9 + [5 * MS]], 4 / 14),
    "in one of two threads": ([[MS] * 10, [MS] * 6 + [4 * MS]], 3 / 20),
    "a quota that is used up": ([[2 * MS] * 20 + [60 * MS]], 58 / 100),
}


@pytest.mark.parametrize("name", CASES)
def test_the_share_of_pauses_is_found(name):
    samples, expected = CASES[name]
    assert paused_share(samples) == pytest.approx(expected)


@pytest.mark.parametrize(("share", "is_disturbed"), [(0.0, False), (MOST_PAUSED, False), (0.2, True)])
def test_few_pauses_are_no_disturbance(share, is_disturbed):
    assert bool(described(share)) is is_disturbed


def test_the_time_of_a_gpu_is_its_own():
    assert disturbance(replace(ASSUMED["gpu"], compute_units=10**6)) == ""


def test_programs_that_take_every_processor_are_seen():
    units = len(os.sched_getaffinity(0))
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * units)]
    try:
        found, end = "", monotonic() + PATIENCE_S
        while not found and monotonic() < end:
            found = disturbance(replace(ASSUMED["cpu"], compute_units=units))
        assert "other work had the processors" in found
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
