"""A full disk costs an agent the attempt that meets it, or its haste, and none of the others."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from agent.attempt.lease import try_lease
from agent.attempt.room import needing_room
from agent.attempt.running import NO_ROOM_TEXT
from agent.machine import workload
from agent.wire.messages import Arm, CancelJob, Heartbeat, JobResult, ReasonCode, Receipt, Status
from tests import needs
from tests.agent.embedded_agent import PATIENCE_S, EmbeddedAgent, eventually, job
from tests.faults.disks import fill, small_disk

SCRIPT = str(Path(__file__).parents[1] / "processes/bad_runners.py")
RUNNER = [sys.executable, SCRIPT, "told"]


@pytest.fixture
def mounted(tmp_path):
    """Mount small file systems below the test's folder, for as long as the test takes."""
    needs.network_namespaces()  # whoever may make one may mount
    with ExitStack() as disks:
        yield lambda name, size: disks.enter_context(small_disk(tmp_path / name, size))


@pytest.fixture
def start_on(start_agent, mounted):
    """Start an agent whose state has a disk of its own, of this size."""

    def start(size: str = "4m") -> tuple[EmbeddedAgent, Path]:
        disk = mounted("disk", size)
        return start_agent(runner=RUNNER, state="disk/agent"), disk

    return start


def begun(agent, spec) -> None:
    agent.send(spec)
    agent.expect(Heartbeat, lambda beat: (beat.attempt_id, beat.phase) == (spec.attempt_id, "ready"))


def tell(agent) -> None:
    """Have the runner finish, which needs no room for that."""
    os.mkfifo(agent.state / "notes/told")


def fill_with_names(disk: Path) -> list[Path]:
    """Use every inode that is free."""
    made = []
    with suppress(OSError):
        while True:
            made.append(disk / f"name-{len(made)}")
            made[-1].touch()
    return made


def test_a_job_that_cannot_be_journaled_is_refused_and_the_attempt_beside_it_goes_on(start_on, stored):
    agent, disk = start_on()
    first, second = job(stored), job(stored)
    begun(agent, first)
    ballast = fill(disk)
    refused = agent.refusal(second)
    assert (refused.attempt_id, refused.reason.code) == (second.attempt_id, ReasonCode.DEVICE_LOST)
    assert "no space left" in refused.reason.text
    assert "free some" in refused.reason.text
    ballast.unlink()
    tell(agent)
    assert agent.expect(JobResult).status is Status.DONE
    assert agent.run(second).status is Status.DONE


def test_a_result_that_does_not_fit_into_the_journal_waits_for_room(start_on, stored):
    agent, disk = start_on()
    spec = job(stored)
    begun(agent, spec)
    ballast = fill(disk)
    tell(agent)
    agent.expect(Heartbeat, lambda beat: beat.phase == NO_ROOM_TEXT)
    assert try_lease(agent.folder / "leases", "host-cpu") is None, (
        "the device is free before its result is safe"
    )
    ballast.unlink()
    assert agent.expect(JobResult).status is Status.DONE
    assert len(workload.load(agent.state / "workload.json", "host-cpu")) == 1, (
        "kept once, however often tried"
    )


def test_an_agent_ends_with_a_result_that_waits_for_room_and_the_next_one_sends_it(
    start_on, stored, start_agent
):
    agent, disk = start_on()
    begun(agent, spec := job(stored))
    ballast = fill(disk)
    tell(agent)
    agent.expect(Heartbeat, lambda beat: beat.phase == NO_ROOM_TEXT)
    agent.hang_up()
    assert agent.process.wait(PATIENCE_S) == 0
    ballast.unlink()
    owed = start_agent(runner=RUNNER, state="disk/agent").expect(JobResult)
    assert (owed.attempt_id, owed.status) == (spec.attempt_id, Status.DONE)


def test_a_receipt_that_cannot_be_noted_leaves_the_result_in_the_journal(start_on, stored):
    agent, disk = start_on()
    begun(agent, spec := job(stored))
    tell(agent)
    result = agent.expect(JobResult)
    eventually(lambda: not (agent.state / "work" / spec.attempt_id).exists(), "its folder is still there")
    ballast = fill(disk)
    agent.send(Receipt(attempt_id=spec.attempt_id))
    agent.send(spec)
    assert agent.expect(JobResult) == result
    ballast.unlink()
    agent.send(Receipt(attempt_id=spec.attempt_id))
    assert "already ended" in agent.refusal(spec).reason.text


def test_an_attempt_whose_files_do_not_fit_ends_as_a_fault_of_its_host(start_on, stored):
    agent, disk = start_on()
    lease = try_lease(agent.folder / "leases", "host-cpu")
    agent.send(spec := job(stored))
    agent.expect(Heartbeat, lambda beat: beat.phase.startswith("waiting"))
    ballast = fill(disk)
    lease.release()
    agent.expect(Heartbeat, lambda beat: beat.phase == NO_ROOM_TEXT)
    ballast.unlink()
    result = agent.expect(JobResult)
    assert (result.attempt_id, result.reason.code) == (spec.attempt_id, ReasonCode.DEVICE_LOST)
    assert f"no space left for an attempt in {agent.state / 'work'}; free some" in result.reason.text
    tell(agent)
    assert agent.run(job(stored)).status is Status.DONE


def test_a_lock_that_cannot_be_made_fails_the_attempt_that_needs_it(start_agent, stored, mounted):
    mounted("leases", "1m,nr_inodes=1")
    agent = start_agent(runner=RUNNER)
    for _ in range(2):
        agent.send(job(stored))
        reason = agent.expect(JobResult).reason
        assert reason.code is ReasonCode.DEVICE_LOST
        assert "no space left for the lock of the device" in reason.text


def test_a_log_and_a_history_that_cannot_be_written_cost_no_result(start_on, stored):
    agent, disk = start_on("4m,nr_inodes=100")
    begun(agent, job(stored))
    one, *_ = fill_with_names(disk)
    # Told by a name that is there already: nothing of the result is written before the disk is full.
    one.rename(agent.state / "notes/told")
    assert agent.expect(JobResult).status is Status.DONE
    assert workload.load(agent.state / "workload.json", "host-cpu") == []


def test_an_attempt_is_cancelled_although_its_runner_cannot_be_told(start_on, stored):
    agent, disk = start_on("4m,nr_inodes=100")
    begun(agent, spec := job(stored))
    fill_with_names(disk)
    agent.send(CancelJob(attempt_id=spec.attempt_id))
    assert agent.expect(JobResult).status is Status.CANCELLED


def test_an_arm_whose_cancel_cannot_be_marked_ends_with_the_others(start_on, stored):
    agent, disk = start_on("4m,nr_inodes=100")
    first = job(stored)
    arm = Arm(
        attempt_id=f"{first.attempt_id}-1", attempt_no=1, cell_id="cell-1", epoch=first.epoch,
        device_id="host-cpu", delegate="other", delegate_kind="litert", delegate_options={},
    )  # fmt: skip
    lease = try_lease(agent.folder / "leases", "host-cpu")
    agent.send(first.model_copy(update={"arms": (arm,), "baseline": first.attempt_id, "seed": 1}))
    agent.expect(Heartbeat, lambda beat: beat.phase.startswith("waiting"))
    fill_with_names(disk)
    agent.send(CancelJob(attempt_id=arm.attempt_id))
    lease.release()
    ended = [agent.expect(JobResult) for _ in range(2)]
    assert {result.attempt_id for result in ended} == {first.attempt_id, arm.attempt_id}
    assert {result.reason.code for result in ended} == {ReasonCode.DEVICE_LOST}


def test_only_a_full_disk_is_called_one(tmp_path):
    for error in (PermissionError(13, "no"), sqlite3.OperationalError("locked")):
        error.sqlite_errorcode = sqlite3.SQLITE_LOCKED
        with pytest.raises(type(error)) as caught, needing_room("it"):
            raise error
        assert caught.value is error
