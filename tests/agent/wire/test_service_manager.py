"""Services notify systemd, through a socket like systemd's."""

from __future__ import annotations

import os

from agent.wire.service_manager import ServiceManager
from tests.services.notified import Notified


def test_nothing_is_said_where_nobody_asked():
    manager = ServiceManager.from_environment({})
    assert manager.interval_s is None
    manager.ready("up")
    manager.alive()
    manager.stopping()


def test_readiness_signs_of_life_and_the_end_arrive():
    systemd = Notified(watchdog_s=600)
    manager = ServiceManager.from_environment(systemd.environment)
    manager.ready("scheduling")
    for _ in range(5):
        manager.alive()
    manager.stopping()
    assert systemd.said() == ["READY=1", "STATUS=scheduling", "WATCHDOG=1", "STOPPING=1"], "one when due"
    systemd.close()


def test_a_watchdog_of_another_process_is_not_fed():
    environment = {"NOTIFY_SOCKET": "@nowhere", "WATCHDOG_USEC": "1000000"}
    assert ServiceManager.from_environment(environment | {"WATCHDOG_PID": "1"}).interval_s is None
    own = ServiceManager.from_environment(environment | {"WATCHDOG_PID": str(os.getpid())})
    assert own.interval_s == 0.25


def test_a_manager_that_is_gone_stops_nothing():
    systemd = Notified(watchdog_s=1)
    manager = ServiceManager.from_environment(systemd.environment)
    systemd.close()
    manager.ready("up")
    manager.alive()


def test_a_manager_that_does_not_read_stops_nothing():
    systemd = Notified(watchdog_s=600)
    manager = ServiceManager.from_environment(systemd.environment)
    manager.ready("up")
    for _ in range(10_000):
        manager.status("more than the queue of a socket takes")
    assert systemd.said()[0] == "READY=1"
    systemd.close()
