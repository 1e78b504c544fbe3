"""Some cells begin together, to be measured by blocks; the end of one of them has a meaning for the
others.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.bounded import MAX_ARMS
from agent.wire.messages import JobSpec, ReasonCode, Status
from orchestrator.db import tables
from orchestrator.db.cells import attempts, jobs
from orchestrator.db.scheduling import assignments, ingest
from orchestrator.manifest.campaign import CellRule
from orchestrator.policy.blocks import kept_busy
from tests.orchestrator.asked import CPU, GPU, POCL, asked
from tests.orchestrator.stocked import cells, result, stock

CARD = GPU.model_copy(update={"exclusion_group": "host/gpu-0"})
SECOND = GPU.model_copy(update={"device_id": "gpu-1", "exclusion_group": "host/gpu-1"})
HOST = (CPU, CARD, SECOND)
DELEGATES = {"litert": {}, "cpu": {}, "gpu": {}}


def fill(database, *, at: datetime | None = None, devices=HOST) -> list[JobSpec]:
    """Give the host's idle devices their next cells."""
    with database.write() as turn:
        now = at or datetime.now(UTC)
        return [job for _, job in assignments.fill(turn, [d.device_id for d in devices], now)]


def end(database, job: JobSpec, *which: str, status: Status = Status.DONE) -> None:
    """End the attempts of a job on these delegates, else all of them."""
    for own in job.attempts:
        if not which or own.delegate in which:
            with database.write() as turn:
                attempts.start(turn, own.attempt_id, own.epoch, datetime.now(UTC))
                assert ingest.apply(turn, result(own, status), datetime.now(UTC)) in ("counted", "superseded")


def arms(job: JobSpec) -> list[tuple[str, str, bool]]:
    own = [(job.delegate, job.device_id, True)]
    return own + [(arm.delegate, arm.device_id, arm.reported) for arm in job.arms]


def states(database) -> dict[tuple[str, str, str], str]:
    return {(cell.model, cell.delegate, cell.target): cell.state for cell in cells(database)}


def test_the_cells_of_a_model_on_a_host_begin_together_with_the_hosts_baseline(database):
    stock(database, asked(("m", "n"), DELEGATES, baseline="litert"), HOST)
    (job,) = fill(database)
    assert arms(job) == [
        ("litert", "host-cpu", True),
        ("cpu", "host-cpu", True),
        ("gpu", "gpu-0", True),
        ("gpu", "gpu-1", True),
    ]
    assert job.baseline == job.attempt_id
    assert {own.model_id for own in job.attempts} == {"m"}
    assert {own.epoch for own in job.attempts if own.device_id == "host-cpu"} == {job.epoch}
    assert fill(database) == [], "the host is busy as a whole"
    end(database, job, "litert")
    assert fill(database) == [], "as long as one of them runs"
    end(database, job, "cpu", "gpu")
    (following,) = fill(database)
    assert {own.model_id for own in following.attempts} == {"n"}


def test_a_job_has_no_more_arms_than_its_message_takes(database):
    many = {f"cpu-{i}": {"kind": "cpu", "threads": i + 1} for i in range(2 * MAX_ARMS + 2)}
    stock(database, asked(("m",), {"litert": {}, **many}, baseline="litert"), HOST)
    while jobs := fill(database):
        (job,) = jobs
        assert JobSpec.model_validate_json(job.model_dump_json()) == job
        end(database, job)
    assert set(states(database).values()) == {"done"}


def test_a_job_that_is_sent_again_is_the_same_job(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), HOST)
    (job,) = fill(database)
    with database.read() as session:
        assert jobs.owed(session) == [("embedded", job)]
        assert jobs.unstarted(session) == [("embedded", job)]
    assert 0 < job.seed < 2**32


def test_without_a_baseline_every_cell_begins_alone_and_beside_the_others(database):
    stock(database, asked(("m",), {"gpu": {}}), HOST)
    assert sorted(arms(job) for job in fill(database)) == [
        [("gpu", "gpu-0", True)],
        [("gpu", "gpu-1", True)],
    ]


def test_a_baseline_on_the_gpu_itself_keeps_only_that_gpu_busy(database):
    delegates = {"fp32": {"kind": "gpu"}, "fp16": {"kind": "gpu", "precision": "fp16"}}
    stock(database, asked(("m",), delegates, baseline="fp32"), HOST)
    found = sorted(fill(database), key=lambda job: job.device_id)
    assert [arms(job) for job in found] == [
        [("fp32", name, True), ("fp16", name, True)] for name in ("gpu-0", "gpu-1")
    ]


def test_a_contender_that_tries_again_is_compared_with_the_baseline_once_more(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), (CPU, CARD))
    (job,) = fill(database)
    with database.write() as turn:
        mine = next(own for own in job.attempts if own.delegate == "gpu")
        lost = result(mine, Status.FAILED, ReasonCode.RUNNER_KILLED)
        assert ingest.apply(turn, lost, datetime.now(UTC)) == "superseded"
    end(database, job, "litert", "cpu")
    (again,) = fill(database, at=datetime.now(UTC) + timedelta(hours=1))
    assert arms(again) == [("gpu", "gpu-0", True), ("litert", "host-cpu", False)]
    assert again.baseline == again.arms[0].attempt_id
    assert [own.cell_id for own in again.attempts] == [mine.cell_id], "the baseline's own cell stays as it is"
    end(database, again)
    assert set(states(database).values()) == {"done"}


def test_all_of_them_try_again_together_after_their_agent_was_lost(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), (CPU, CARD))
    (job,) = fill(database)
    for own in job.attempts:
        with database.write() as turn:
            lost = result(own, Status.FAILED, ReasonCode.AGENT_LOST)
            assert ingest.apply(turn, lost, datetime.now(UTC)) == "superseded"
    (again,) = fill(database, at=datetime.now(UTC) + timedelta(hours=1))
    assert arms(again) == arms(job)
    assert [own.attempt_no for own in again.attempts] == [2, 2, 2]
    assert again.seed != job.seed


def test_a_fault_that_ends_all_arms_of_a_runner_counts_once_against_their_device(database):
    delegates = {"litert": {}, "cpu": {}, "cpu-t1": {"kind": "cpu"}, "cpu-t2": {"kind": "cpu", "threads": 2}}
    stock(database, asked(("m",), delegates, baseline="litert"), (CPU,))
    (job,) = fill(database)
    assert len(job.attempts) == 4
    for own in job.attempts:
        with database.write() as turn:
            ingest.apply(turn, result(own, Status.FAILED, ReasonCode.AGENT_LOST), datetime.now(UTC))
    with database.read() as session:
        device = session.get_one(tables.Device, "host-cpu")
        assert (device.quarantined_at, len(device.faulty_cells)) == (None, 1)


def test_contenders_of_a_baseline_that_failed_run_by_themselves(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), (CPU, CARD))
    with database.write() as turn:
        row = turn.exec(select(tables.Cell).where(tables.Cell.delegate == "litert")).one()
        row.state = "failed"
    found = fill(database)
    assert [arms(job) for job in found] == [[("cpu", "host-cpu", True)]], "the host is the CPU's alone"


def test_a_baseline_that_is_excluded_is_not_measured(database):
    rule = CellRule(model="m", delegate="litert")
    stock(database, asked(("m",), DELEGATES, baseline="litert", exclude=(rule,)), (CPU, CARD))
    assert all(len(arms(job)) == 1 for job in fill(database))


def test_a_cancelled_arm_ends_and_the_others_count(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), (CPU, CARD))
    (job,) = fill(database)
    gpu = next(own for own in job.attempts if own.delegate == "gpu")
    with database.write() as turn:
        turn.cell(gpu.cell_id).cancel_asked_at = datetime.now(UTC)
    end(database, job, "gpu", status=Status.CANCELLED)
    end(database, job, "litert", "cpu")
    assert states(database) == {
        ("m", "litert", "host-cpu"): "done",
        ("m", "cpu", "host-cpu"): "done",
        ("m", "gpu", "gpu-0"): "cancelled",
    }


def test_the_device_time_of_attempts_that_take_turns_is_counted_once(database):
    stock(database, asked(("m",), DELEGATES, baseline="litert"), (CPU, CARD))
    begun = datetime.now(UTC)
    (job,) = fill(database, at=begun)
    for own in job.attempts:
        with database.write() as turn:
            ingest.apply(turn, result(own), begun + timedelta(seconds=30))
    with database.read() as session:
        served_s = session.exec(select(tables.Campaign.served_s)).one()
    assert served_s == pytest.approx(30.0, abs=0.01)


@pytest.mark.parametrize(
    ("device", "baseline", "busy"),
    [
        (CARD, None, "host/gpu-0"),
        (CARD, "litert", "host"),
        (CARD, "gpu", "host/gpu-0"),
        (CPU, "litert", "host"),
        (CARD, "unknown", "host/gpu-0"),
        (GPU, "litert", "gpu-0"),
    ],
    ids=["no baseline", "on the CPU", "on itself", "is the CPU", "nowhere", "of no common group"],
)
def test_a_cell_keeps_everything_busy_that_it_is_compared_with(device, baseline, busy):
    assert kept_busy(device, (CPU, POCL, device, SECOND), baseline) == busy
