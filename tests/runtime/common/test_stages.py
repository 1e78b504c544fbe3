"""The clock of a start: no time counts twice, and neither onlookers nor other threads are in it."""

from __future__ import annotations

from threading import Thread

import pytest

from runtime.common import stages
from runtime.common.stages import StageClock, clocked, stage


@pytest.fixture
def at(monkeypatch):
    """Return a clock that stands still until it is advanced."""
    now = [0]
    monkeypatch.setattr(stages, "perf_counter_ns", lambda: now[0])

    def go_on(ns: int) -> None:
        now[0] += ns

    return go_on


def test_a_stage_within_another_interrupts_it(at):
    with clocked(StageClock()) as clock:
        at(1)
        with stage("compile"):
            at(10)
            with stage("tune"):
                at(100)
            at(20)
            with stage("tune"):
                at(200)
        at(1000)
        with stage("compile"):
            at(40)
    assert clock.spent_ns == {"compile": 70, "tune": 300}


def test_a_stage_that_fails_is_counted_until_then_and_the_outer_one_goes_on(at):
    def fail_after(ns: int) -> None:
        at(ns)
        raise RuntimeError

    with clocked(StageClock()) as clock, stage("compile"):
        with pytest.raises(RuntimeError), stage("upload"):
            fail_after(5)
        at(7)
    assert clock.spent_ns == {"compile": 7, "upload": 5}


def test_what_looks_on_counts_to_no_stage(at):
    ended = []

    def look(name: str) -> None:
        ended.append(name)
        at(1000)

    with clocked(StageClock(look)) as clock, stage("compile"):
        at(3)
        with stage("upload"):
            at(4)
        at(5)
    assert ended == ["upload", "compile"]
    assert clock.spent_ns == {"compile": 8, "upload": 4}
    assert clock.told_ns == 2000


def test_a_thread_that_measures_nothing_is_not_heard(at):
    def elsewhere() -> None:
        with stage("tune"):
            at(9)

    with clocked(StageClock()) as clock, stage("compile"):
        other = Thread(target=elsewhere)
        other.start()
        other.join()
    assert "tune" not in clock.spent_ns
    elsewhere()
    assert "tune" not in clock.spent_ns
