"""Scenarios 19 and 21: cables pulled, packets lost in one direction or at random, a slow and uneven way."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager

import pytest

from tests.faults import forms
from tests.needs import REPOSITORY
from tests.services.processes import Server
from tests.services.redis import PORT as REDIS

SHORT_S, LONG_S = 3.0, 12.0
"""Shorter and longer than `FARM_LOST_S` (6 s)."""


@pytest.mark.parametrize("outage_s", [SHORT_S, LONG_S], ids=["short", "long"])
def test_scenario_19_a_job_ends_behind_a_pulled_cable_and_counts_once(fault_lab, outage_s):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(6, gpu={"seconds": 0.3, "first_seconds": 1.0})
    lab.until_done(1)
    running = lab.until_running("agA")
    agent = lab.agents["agA"]
    agent.node.pull_cable()
    time.sleep(outage_s)
    completed = {fact.attempt_id for fact in lab.view.facts() if fact.event == "completed"}
    assert running.attempt_id in completed, "it ended locally"
    agent.node.plug_cable()
    assert lab.finish() == {"done": 12}
    tries = lab.view.attempts(running.cell_id)
    if outage_s == SHORT_S:
        assert [attempt.state for attempt in tries] == ["done"], "nothing was given up"
    stored = {result.attempt_id for result in lab.view.results()}
    assert running.attempt_id in stored


@pytest.mark.parametrize("direction", ["to-agent", "from-agent"])
def test_scenario_21a_a_way_that_works_in_one_direction_doubles_nothing(fault_lab, direction):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(6, gpu={"seconds": 0.3})
    lab.until_done(1)
    node = lab.agents["agA"].node
    if direction == "to-agent":
        node.drop_incoming()
    else:
        node.drop_outgoing()
    time.sleep(8)
    node.drop_nothing()
    assert lab.finish() == {"done": 12}


@contextmanager
def through_proxy(lab, node):
    """Delay the traffic between this machine and the broker by a proxy; one packet in ten is lost."""
    middle = lab.network.nodes["middle"]
    proxy = [sys.executable, str(REPOSITORY / "tests/services/proxy.py")]
    way = ["--listen", f"{middle.address}:{REDIS}", "--target", f"{lab.redis.address}:{REDIS}"]
    bad = ["--delay-ms", "150", "--jitter-ms", "100", "--seed", str(lab.seed)]
    server = Server(middle.command([*proxy, *way, *bad]), lab.folder / "proxy.log")
    try:
        node.divert(lab.redis.address, REDIS, middle.address)
        node.drop_incoming(percent=10)
        yield
    finally:
        server.kill()


@contextmanager
def through_netem(_lab, node):
    """Let the kernel delay and lose what this machine sends."""
    node.run("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "300ms", "100ms", "loss", "10%")
    try:
        yield
    finally:
        node.run("tc", "qdisc", "del", "dev", "eth0", "root")


WAYS = (through_proxy, through_netem) if forms.has_netem() else (through_proxy,)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_scenario_21b_random_loss_and_a_slow_uneven_way_double_nothing(fault_lab, way):
    lab = fault_lab
    lab.take_time(FARM_WATCHDOG_S=20, FARM_LOST_S=20, FARM_SUSPECT_S=8, FARM_RESEND_S=8)
    lab.start("agB", devices=1)
    far = lab.add_agent("agA", devices=1)
    with way(lab, far.node):
        far.start()
        lab.until_heard("agA")
        lab.submit(8, gpu={"seconds": 0.2})
        assert lab.finish(limit_s=90) == {"done": 16}
    lost = [attempt for attempt in lab.view.attempts() if attempt.state == "failed"]
    assert len(lost) <= 2, "loss and delay are no silence"
