"""Scenarios 15-18 and 20: Redis crashes, forgets, hangs, fills up, or is exchanged behind a dead cable."""

from __future__ import annotations

import time

import pytest

from tests.faults.lab import until

WORK = {"seconds": 0.3}


def start_with_a_campaign(lab, models=8, **how):
    """Two agents at work on a campaign; a measurement that runs now."""
    lab.start("agA", "agB", devices=1)
    lab.submit(models, gpu=how or WORK)
    lab.until_done(2)
    return lab.until_running()


def ended_as_it_began(lab, running):
    """A measurement that a fault of the broker did not touch."""
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
        done = lab.call("doctor", limit_s=10)
        return done.returncode != 0 and "broker" in done.stdout

    until(named, "farm doctor names the broker")
    lab.redis.resume()
    assert lab.finish() == {"done": 20}


@pytest.mark.parametrize("fault", ["out-of-memory", "read-only"])
def test_scenario_18_a_redis_that_takes_no_writes_keeps_jobs_in_the_outbox(fault_lab, fault):
    lab = fault_lab
    start_with_a_campaign(lab)
    with lab.redis.client() as client:
        if fault == "out-of-memory":
            client.config_set("maxmemory", "1mb")
        else:
            client.config_set("min-replicas-to-write", "1")
        time.sleep(3)
        assert lab.server.running
        assert all(agent.running for agent in lab.agents.values())
        client.config_set("maxmemory", "0")
        client.config_set("min-replicas-to-write", "0")
    assert lab.finish() == {"done": 16}


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
