"""A change of how a process is scheduled is seen from outside, whichever way it was made."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent.machine import scheduling

WAYS = {
    "nice 7": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 7),
    "policy batch": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "disk idle": lambda pid: subprocess.run(["ionice", "-c", "3", "-p", str(pid)], check=True),
    "CPUs 0": lambda pid: os.sched_setaffinity(pid, {0}),
}


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started.pid
        started.kill()


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_slowing_a_process_shows(process, way):
    if way == "CPUs 0" and len(os.sched_getaffinity(process)) == 1:
        pytest.skip("this host has one CPU")
    before = scheduling.of_threads(process)
    assert scheduling.change(before, scheduling.of_threads(process)) is None
    WAYS[way](process)
    found = scheduling.change(before, scheduling.of_threads(process))
    assert found is not None
    assert way in found.partition("; then ")[2], found


def test_of_a_process_that_has_ended_nothing_is_said(process):
    gone = scheduling.of_threads(1 << 30)
    assert gone == {}
    assert scheduling.change(scheduling.of_threads(process), gone) is None
