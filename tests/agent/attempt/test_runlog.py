"""The ground truth: written by several processes, read into intervals, checked for overlaps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agent.attempt import runlog
from agent.attempt.runlog import Interval, RunLine, append, intervals, overlaps, read, take


def line(time_ns, event, attempt="a", group="host-cpu", pid=1, what="measure"):
    return RunLine(time_ns, event, attempt, group, pid, what)


def life(attempt, start, end, group="host-cpu"):
    return Interval(attempt, group, 1, "measure", start, end)


def test_lines_of_several_processes_never_mix(tmp_path):
    path = tmp_path / "runs.log"
    script = (
        "import sys; from pathlib import Path; from agent.attempt.runlog import append\n"
        "for _ in range(200): append(Path(sys.argv[1]), 'start', sys.argv[2] * 50, 'g', 'measure')"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(path), letter]) for letter in "abcd"]
    assert [writer.wait() for writer in writers] == [0] * 4
    lines = read(path)
    assert len(lines) == 800
    assert {line.attempt_id for line in lines} == {letter * 50 for letter in "abcd"}


def test_append_uses_a_clock_that_only_grows(tmp_path):
    path = tmp_path / "runs.log"
    append(path, "start", "a", "g", "measure")
    append(path, "end", "a", "g", "measure")
    first, second = read(path)
    assert 0 < first.time_ns <= second.time_ns


def test_an_agent_takes_what_a_runner_says_of_its_own_processes_and_no_more(tmp_path):
    log, left = tmp_path / "runs.log", tmp_path / "left.log"
    append(left, "start", "a", "host", "measure", 7)
    append(left, "end", "another's", "other-host", "measure", 7, carrier="another's")
    append(left, "gone", "another's", "host", "attempt")
    with left.open("ab") as out:
        out.write(b'{"time_ns": "late"}\n[' + b"[" * 1000 + b"\n\xff\n\n")
    take(log, left, "a", "host")
    assert [(line.event, line.attempt_id, line.exclusion_group, line.carrier) for line in read(log)] == [
        ("start", "a", "host", ""),
        ("end", "a", "host", ""),
    ]
    assert not left.exists()


def test_a_runner_fills_no_log_of_its_agent(tmp_path, monkeypatch):
    log, left = tmp_path / "runs.log", tmp_path / "left.log"
    monkeypatch.setattr(runlog, "MOST_TAKEN_BYTES", 1000)
    monkeypatch.setattr(runlog, "MOST_KEPT_BYTES", 5000)
    for _ in range(100):
        for _ in range(20):
            append(left, "start", "a", "host", "measure")
        before = log.stat().st_size if log.exists() else 0
        take(log, left, "a", "host")
        assert log.stat().st_size <= before + 1000
    assert log.stat().st_size <= 6000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.log", "runs.log.1"]


@pytest.mark.parametrize("form", ["link", "pipe", "folder", "nothing"])
def test_what_is_no_log_is_not_taken(tmp_path, form):
    log, left = tmp_path / "runs.log", tmp_path / "left.log"
    append(tmp_path / "secret", "start", "a", "host", "measure")
    makers = {
        "link": lambda: left.symlink_to(tmp_path / "secret"),
        "pipe": lambda: os.mkfifo(left),
        "folder": left.mkdir,
        "nothing": lambda: None,
    }
    makers[form]()
    take(log, left, "a", "host")
    assert read(log) == []


def test_log_that_does_not_exist_is_empty(tmp_path):
    assert read(tmp_path / "none") == []


def test_gone_closes_what_killed_processes_left_open():
    lines = [
        line(1, "start", pid=10),
        line(2, "end", pid=10),
        line(3, "start", pid=11),
        line(4, "start", "b", pid=12),
        line(9, "gone", pid=1, what="attempt"),
    ]
    assert [(i.pid, i.start_ns, i.end_ns) for i in intervals(lines)] == [
        (10, 1, 2),
        (11, 3, 9),
        (12, 4, None),
    ]


def test_overlaps_are_found_within_a_group_only():
    apart = [life("a", 0, 10), life("b", 10, 20), life("c", 5, 15, group="gpu")]
    assert overlaps(apart) == []
    assert overlaps([life("a", 0, 11), life("b", 10, 20)]) == [(life("a", 0, 11), life("b", 10, 20))]
    assert len(overlaps([life("a", 0, None), life("b", 10, 20)])) == 1


def test_processes_of_one_attempt_may_overlap():
    assert overlaps([life("a", 0, 10), life("a", 5, 15)]) == []


def test_the_end_that_a_runner_writes_for_a_failed_process_counts_once(tmp_path):
    path = tmp_path / "runs.log"
    for pid, own in ((101, False), (102, True)):
        append(path, "start", "a", "host", "measure", pid)
        if own:
            append(path, "end", "a", "host", "measure", pid)
        append(path, "end", "a", "host", "failed", pid)
    found = intervals(read(path))
    assert [(life.pid, life.what) for life in found] == [(101, "measure"), (102, "measure")]
    assert all(life.end_ns is not None for life in found)
    assert overlaps(found) == []
