"""The agent of a farm of one machine: asked for its devices, and kept for the scheduling that follows."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent.wire.messages import AgentHello
from orchestrator.config.home import FarmHome
from orchestrator.errors import UnreachableError
from orchestrator.farm import Farm
from orchestrator.scheduling.lock import lock_holder
from tests.contract.lab import Lab, agent_command, delegates
from tests.orchestrator.stocked import stock


@pytest.fixture
def farm(tmp_path: Path):
    home = FarmHome(tmp_path)
    with Farm.open(home, command=agent_command(home)) as opened:
        yield opened


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_agent_that_told_its_devices_is_the_one_that_is_scheduled_on(farm: Farm) -> None:
    told = farm.devices.hello(keep=True)
    machine = farm.running.machine
    since_at = lock_holder(farm.home.scheduler_lock).since_at
    with machine.lock(7) as lock:
        agent = machine.start_agent()
        (event,) = agent.events(60.0)
        assert (event.message, agent._starts) == (told, 1), "the scheduler hears of its devices too"
        holder = lock_holder(farm.home.scheduler_lock)
        assert (holder.pid, holder.since_at, holder.campaign_no) == (os.getpid(), since_at, 7)
        assert lock.since_at == since_at, "else others would wait for a newer record of the devices"
        agent.close()
    assert lock_holder(farm.home.scheduler_lock) is None
    with machine.lock():
        another = machine.start_agent()
        assert another.pid != agent.pid, "it was kept for one scheduling"
        another.close()


def test_the_agent_lists_its_devices_while_the_files_are_read(tmp_path: Path) -> None:
    home = FarmHome(tmp_path)
    with Farm.open(home, command=agent_command(home)) as farm:
        farm.begin()
        begun = farm.running.machine._kept_agent.pid
        farm.begin()
        farm.devices.hello(keep=True)
        assert farm.running.machine._kept_agent.pid == begun
        farm.begin()
        assert farm.running.machine._kept_agent.pid == begun
        with Farm.open(home, command=["/nonexistent"]) as other:
            other.begin()
            assert other.running.machine._kept_agent is None, "another process has the right to schedule"
    assert lock_holder(home.scheduler_lock) is None
    with Farm.open(home, command=["/nonexistent"]) as farm:
        with pytest.raises(UnreachableError, match="cannot be started"):
            farm.begin()
        assert lock_holder(home.scheduler_lock) is None


@pytest.mark.slow
def test_another_process_measures_while_the_files_are_read(tmp_path: Path) -> None:
    lab = Lab(FarmHome(tmp_path))
    with closing(lab), lab.open() as reading:
        reading.begin()
        # What `reading` does once it has read its files comes after the end of another's campaign.
        other = lab.start("m", delegates=delegates(cpu="done"))
        assert (other.end(), other.kinds()[-1]) == (0, "finished"), other.errors
        assert lock_holder(lab.home.scheduler_lock) is None
        assert isinstance(reading.devices.hello(keep=True), AgentHello)
        assert lock_holder(lab.home.scheduler_lock).pid == os.getpid()


def test_no_agent_is_kept_before_its_time_where_a_campaign_waits(farm: Farm) -> None:
    campaign_id = stock(farm.database)
    farm.begin()
    assert lock_holder(farm.home.scheduler_lock) is None, "who waits for the campaign takes the lock"
    farm.steering.pause(campaign_id)
    farm.begin()
    assert lock_holder(farm.home.scheduler_lock).pid == os.getpid(), "of a paused one nothing is measured"


def test_an_agent_that_ends_while_the_files_are_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    lab = Lab(FarmHome(tmp_path))
    with Farm.open(lab.home, command=[sys.executable, "-c", ""]) as farm:
        farm.begin()
        lab.until(lambda: lock_holder(lab.home.scheduler_lock) is None, "the lock is let go of")
        with pytest.raises(UnreachableError, match="ended 5 times in a row"):
            farm.devices.hello(keep=True)


def test_an_agent_that_is_kept_for_nothing_ends_with_the_farm(tmp_path: Path) -> None:
    home = FarmHome(tmp_path)
    with Farm.open(home, command=agent_command(home)) as farm:
        assert isinstance(farm.devices.hello(keep=True), AgentHello)
        agent = farm.running.machine._kept_agent
        assert is_alive(agent.pid)
        assert lock_holder(home.scheduler_lock).pid == os.getpid()
        with Farm.open(home, command=["/nonexistent"]) as other:
            assert other.devices.hello() == farm.devices.hello(), "recorded by who has the lock"
    assert not is_alive(agent.pid)
    assert lock_holder(home.scheduler_lock) is None


def test_who_only_looks_at_the_devices_keeps_nobody_from_scheduling(farm: Farm) -> None:
    farm.devices.hello()
    assert lock_holder(farm.home.scheduler_lock) is None
    assert farm.running.machine._kept_agent is None
