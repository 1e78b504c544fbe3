"""A campaign survives faults. After each fault the invariants hold, and nothing measured is lost."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.farm import Farm
from tests.contract import checker
from tests.contract.conftest import EMBEDDED
from tests.contract.lab import delegates

PAIRINGS = EMBEDDED
"""Here the process that submits also schedules. What a lab survives is told by `tests/faults`."""

STUCK = {
    "cpu": {"seconds": 0.05},
    "gpu": {"seconds": 0.05, "first_seconds": 60},
    "litert": {"seconds": 0.05},
}
"""The second cell's first attempt lasts until something ends it."""


def test_a_killed_scheduler_is_cleaned_up_by_the_next_command_and_the_campaign_goes_on(lab):
    driver = lab.start("m", delegates=STUCK)
    running = driver.until_started("gpu")
    assert driver.signal(signal.SIGKILL) == -signal.SIGKILL

    with lab.open() as farm:
        states = [c.status for c in farm.reading.cells()]
        interrupted = farm.reading.cell(running)
    assert states == ["done", "queued", "queued"]
    assert [(a.state, a.reason.code) for a in interrupted.attempts] == [("failed", "interrupted")]

    cells, told = lab.run("m", delegates=STUCK)
    assert [c.status for c in cells] == ["done"] * 3
    assert {c.campaign_id for c in cells} == {interrupted.campaign_id}, "the unfinished campaign goes on"
    assert {e.cell.delegate for e in told} == {"gpu", "litert"}, "what was finished is not told again"
    assert checker.starts(lab.home)[cells[0].cell_id] == 1, "what was finished is not measured again"
    lab.check()


def test_ctrl_c_stops_the_runner_keeps_what_is_finished_and_costs_no_attempt(lab):
    driver = lab.start("m", delegates=STUCK)
    running = driver.until_started("gpu")
    assert driver.signal(signal.SIGINT) == 130, driver.errors
    lab.check(all_ended=False)
    with lab.open() as farm:
        assert [c.status for c in farm.reading.cells()] == ["done", "queued", "queued"]
        stopped = farm.reading.cell(running)
    assert [(a.state, a.reason.code) for a in stopped.attempts] == [("cancelled", "interrupted")]

    cells, _ = lab.run("m", delegates=STUCK)
    assert [c.status for c in cells] == ["done"] * 3
    lab.check()


@pytest.mark.slow
def test_a_second_submission_joins_the_running_scheduler(lab):
    first = lab.start("m", delegates=STUCK, name="first")
    running = first.until_started("gpu")
    second = lab.start("x", delegates={"cpu": {}}, name="second")
    second.until_kind("submitted")
    with lab.open() as farm:
        farm.steering.cancel(running)
    assert first.end() == 0, first.errors
    assert second.end() == 0, second.errors
    assert second.kinds()[-1] == "finished"
    lab.check()


def test_the_same_submission_twice_at_once_is_one_campaign(lab):
    first = lab.start("m", delegates=STUCK)
    running = first.until_started("gpu")
    second = lab.start("m", delegates=STUCK)
    second.until_kind("submitted")
    assert first.lines[0] == second.lines[0], "both name the same campaign"
    with lab.open() as farm:
        farm.steering.cancel(running)
    assert first.end() == 0, first.errors
    assert second.end() == 0, second.errors
    assert set(checker.starts(lab.home).values()) == {1}
    lab.check()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_who_waits_takes_over_when_the_scheduling_process_ends(lab, fault):
    first = lab.start("m", delegates=STUCK, name="first")
    first.until_started("gpu")
    second = lab.start("x", delegates={"cpu": {}}, name="second")
    second.until_kind("submitted")
    first.signal(fault)
    assert second.end() == 0, second.errors
    with lab.open() as farm:
        assert farm.reading.campaign("second").counts == {"done": 1}
        assert farm.reading.campaign("first").counts == {"done": 1, "queued": 2}, "nobody waits: left alone"
    lab.check(all_ended=False)
    cells, _ = lab.run("m", delegates=STUCK, name="first")
    assert [c.status for c in cells] == ["done"] * 3
    lab.check()


@pytest.mark.slow
def test_everybody_who_waits_is_served_after_a_takeover(lab):
    first = lab.start("m", delegates=STUCK, name="first")
    first.until_started("gpu")
    others = [lab.start("x", delegates={"cpu": {"seconds": 0.3}}, name=name) for name in ("second", "third")]
    for other in others:
        other.until_kind("submitted")
    first.signal(signal.SIGKILL)
    assert [other.end() for other in others] == [0, 0]
    with lab.open() as farm:
        assert farm.reading.campaign("second").counts == farm.reading.campaign("third").counts == {"done": 1}
    lab.check(all_ended=False)


@pytest.mark.slow
def test_who_joined_may_leave_without_disturbing_the_others(lab):
    first = lab.start("m", delegates=STUCK, name="first")
    running = first.until_started("gpu")
    second = lab.start("x", delegates={"cpu": {}}, name="second")
    second.until_kind("submitted")
    assert second.signal(signal.SIGINT) == 130
    with lab.open() as farm:
        assert farm.reading.cell(running).status == "running"
        farm.steering.cancel(running)
    assert first.end() == 0, first.errors
    with lab.open() as farm:
        assert farm.reading.campaign("first").counts == {"done": 2, "cancelled": 1}
        assert farm.reading.campaign("second").counts == {"queued": 1}
    lab.check(all_ended=False)


@pytest.mark.slow
def test_a_result_that_was_spooled_when_the_agent_died_is_counted_and_not_measured_again(lab):
    cells, _ = lab.run("m", delegates=delegates(doomed="die-after-result"))
    assert [c.status for c in cells] == ["done"]
    assert list(checker.starts(lab.home).values()) == [1]
    lab.check()


def test_an_agent_that_dies_with_a_job_is_replaced_and_the_cell_tried_again(lab):
    cells, told = lab.run("m", delegates=delegates(shaky="die-once", good="done"))
    assert [c.status for c in cells] == ["done", "done"]
    assert [a.reason.code for a in cells[0].attempts if a.reason] == ["agent_lost"]
    assert "retry" in [e.kind for e in told]
    lab.check()


@pytest.mark.slow
def test_a_cell_that_kills_every_agent_ends_and_the_others_finish(lab):
    cells, _ = lab.run("m", delegates=delegates(poison="die", venom="die", good="done"))
    assert [(c.status, c.reason and c.reason.code) for c in cells] == [
        ("failed", "agent_lost"),
        ("failed", "agent_lost"),
        ("done", None),
    ]
    lab.check()


@pytest.mark.slow
def test_an_agent_that_cannot_start_gives_one_clear_error_and_the_cells_wait(lab):
    with lab.open() as farm:
        submitted = lab.submit(farm, "m", delegates={"cpu": {}})
    broken = ["python3", "-c", "raise SystemExit('no such thing as an agent')"]
    with (
        Farm.open(lab.home, lab=lab.config, command=broken) as farm,
        pytest.raises(UnreachableError, match="no such thing as an agent"),
    ):
        farm.running.run(submitted, lambda _: None)
    lab.check(all_ended=False)
    cells, _ = lab.run("m", delegates={"cpu": {}})
    assert [c.status for c in cells] == ["done"]


@pytest.mark.parametrize("delay_s", [0.0, 0.2, 0.5, 0.8])
def test_a_cancel_at_any_moment_ends_every_cell_once(lab, delay_s):
    def cancel():
        time.sleep(delay_s)
        with lab.open() as other:
            other.steering.cancel(submitted.campaign_id)

    how = {"delegates": {"cpu": {"seconds": 0.3}}}
    models = [f"m{i}" for i in range(30)]
    with lab.open() as farm:
        submitted = lab.submit(farm, *models, **how)
        thread = threading.Thread(target=cancel)
        thread.start()
        farm.running.run(submitted, lambda _: None)
        thread.join()
        states = [c.status for c in farm.reading.cells(submitted.campaign_id)]
        assert set(states) <= {"done", "cancelled"}
        assert states[-1] == "cancelled"
        again = lab.submit(farm, *models, **how)
        assert again.campaign_id != submitted.campaign_id, "a cancelled campaign is not continued"
        farm.steering.cancel(farm.reading.campaign().campaign_id)
    lab.check()


def test_a_running_cell_is_cancelled_from_another_process_within_moments(lab):
    driver = lab.start("m", delegates=STUCK | {"gpu": {"seconds": 0.05, "first_seconds": 600}})
    cell = driver.until_started("gpu")
    with lab.open() as farm:
        began = time.monotonic()
        assert farm.steering.cancel(cell[:10]) == 1
    line = driver.until(lambda found: found["kind"] == "finished")
    assert (line["cell"], line["status"]) == (cell, "cancelled")
    assert time.monotonic() - began < 300, "the cell would have run for 600 s"
    assert driver.end() == 0
    lab.check()


def test_cancelling_what_has_ended_changes_nothing(lab):
    cells, _ = lab.run("m", delegates={"cpu": {}})
    with lab.open() as farm:
        assert farm.steering.cancel(cells[0].campaign_id) == 0
        assert farm.reading.cell(cells[0].cell_id).status == "done"


@pytest.mark.slow
def test_state_can_be_read_while_a_campaign_runs(lab):
    driver = lab.start("m", delegates=STUCK)
    driver.until_started("gpu")
    with lab.open() as farm:
        assert farm.reading.campaign().counts == {"done": 1, "running": 1, "queued": 1}
        assert {d.device_id for d in farm.devices.hello().devices} == {"host-cpu", "pocl"}
        assert "running, process" in {c.name: c.found for c in farm.doctor()}["scheduler"]
        assert len(checker.alive_agents(lab.home)) == 1, "no second agent is asked"
        farm.steering.cancel("test")
    assert driver.end() == 0
    lab.check()
