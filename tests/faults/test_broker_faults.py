"""Scenarios 15-18 and 20: Redis crashes, forgets, hangs, fills up, or is exchanged behind a dead cable."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from tests.faults.disks import fill, small_disk
from tests.faults.lab import until

WORK = {"seconds": 0.3}


@pytest.fixture
def redis_disk(tmp_path):
    """Mount a file system of 8 MB."""
    with small_disk(tmp_path / "redis-disk", "8m") as folder:
        yield folder


def start_with_a_campaign(lab, models=8, **how):
    """Two agents at work on a campaign; a measurement that runs now."""
    lab.start("agA", "agB", devices=1)
    lab.submit(models, gpu=how or WORK)
    lab.until_done(2)
    return lab.until_running()


def ended_as_it_began(lab, running):
    """Return whether the measurements ended as they began, untouched by a fault of the broker."""
    return [
        (fact.pid, fact.status)
        for fact in lab.view.facts()
        if fact.event == "completed" and fact.attempt_id == running.attempt_id
    ] == [(running.pid, "done")]


def test_scenario_15_redis_crashes_and_comes_back_with_its_file(fault_lab):
    lab = fault_lab
    running = start_with_a_campaign(lab)
    lab.redis.restart(pause_s=2.0)
    assert lab.finish() == {"done": 16}
    assert ended_as_it_began(lab, running)


@pytest.mark.parametrize("how", ["flushall", "empty"])
def test_scenario_16_redis_forgets_everything_and_all_is_published_again(fault_lab, how):
    lab = fault_lab
    running = start_with_a_campaign(lab)
    if how == "flushall":
        with lab.redis.client() as client:
            client.flushall()
    else:
        lab.redis.lose_everything()
    assert lab.finish() == {"done": 16}
    assert ended_as_it_began(lab, running)


def test_scenario_17_a_redis_that_hangs_holds_nobody_up(fault_lab):
    lab = fault_lab
    start_with_a_campaign(lab)
    lab.redis.pause()
    began = time.monotonic()
    lab.submit(2, gpu=WORK)
    assert time.monotonic() - began < 10, "a submission needs no broker"

    def named() -> bool:
        done = lab.call("doctor", limit_s=30)
        return done.returncode != 0 and "BAD  broker: " in done.stdout

    until(named, "farm doctor names the broker")
    time.sleep(max(0.0, began + 3 * float(lab.times["FARM_WATCHDOG_S"]) - time.monotonic()))
    lab.redis.resume()
    assert lab.finish() == {"done": 20}


@contextmanager
def out_of_memory(lab):
    """Redis may use less than it has."""
    with lab.redis.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            yield
        finally:
            client.config_set("maxmemory", "0")


@contextmanager
def read_only(lab):
    """Redis asks for a replica that there is not."""
    with lab.redis.client() as client:
        client.config_set("min-replicas-to-write", "1")
        try:
            yield
        finally:
            client.config_set("min-replicas-to-write", "0")


@contextmanager
def disk_full(lab):
    """Fill the disk: the append-only file cannot grow."""
    ballast = fill(lab.redis.data)
    try:
        yield
    finally:
        ballast.unlink()


@pytest.mark.parametrize("fault", [out_of_memory, read_only, disk_full], ids=lambda fault: fault.__name__)
def test_scenario_18_a_redis_that_takes_no_writes_keeps_jobs_in_the_outbox(redis_disk, fault_lab, fault):
    lab = fault_lab
    lab.redis.move_to(redis_disk)
    start_with_a_campaign(lab)
    with fault(lab):
        alarm = until(lambda: no_writes(lab), "farm doctor names it")
        assert "Traceback" not in alarm
        time.sleep(2)
        assert lab.server.running
        assert all(agent.running for agent in lab.agents.values())
    assert lab.finish() == {"done": 16}


def no_writes(lab) -> str:
    """Return `farm doctor`'s message about a broker that refuses writes; empty: nothing yet."""
    done = lab.call("doctor", limit_s=30)
    return done.stdout if done.returncode != 0 and "refuses writes" in done.stdout else ""


def test_scenario_20_a_message_that_is_lost_in_a_half_open_connection_is_dispatched_again(fault_lab):
    lab = fault_lab
    lab.start("agA", "agB", devices=1)
    node = lab.agents["agA"].node
    node.pull_cable()
    lab.redis.restart()
    time.sleep(2)
    node.plug_cable()
    time.sleep(0.5)
    lab.submit(6, gpu=WORK)
    assert lab.finish() == {"done": 12}
