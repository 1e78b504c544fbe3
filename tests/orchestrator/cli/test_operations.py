"""The verbs that ask and steer, on a farm whose cells nobody runs meanwhile."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.messages import ReasonCode, RunnerOutput, Status
from orchestrator.cli.logs import unseen
from orchestrator.db import tables
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.cells import running_attempts
from orchestrator.db.devices import quarantine as recoveries
from orchestrator.db.devices.quarantine import LostDevice
from orchestrator.db.scheduling import ingest
from orchestrator.farm.reading.cells import Reading
from orchestrator.manifest.campaign import DeviceSelector
from orchestrator.scheduling.lock import SchedulerLock
from tests.orchestrator.asked import CPU, GPU, POCL, asked
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.stocked import cells, dispatch, result, stock

FLEET = (CPU, POCL, GPU)


@pytest.fixture
def scheduled(shell: Shell, database):
    """Somebody schedules: what runs is not cleaned up as the rest of a killed process."""
    with SchedulerLock.acquire(shell.home / "scheduler.lock"):
        yield


def now():
    return datetime.now(UTC)


def take_in(database, job, *how):
    with database.write() as session:
        ingest.apply(session, result(job, *how), now())


def change(database, table, key, **values):
    with database.write() as session:
        session.get_one(table, key).sqlmodel_update(values)


def test_status_counts_cells_devices_and_suspects(call, shell, database, scheduled):
    stock(database, asked(("a", "b"), {"cpu": {}, "gpu": {}}), FLEET)
    cell, *_ = cells(database)
    job = dispatch(database, cell.cell_id)
    change(database, tables.Attempt, job.attempt_id, heard_at=now() - timedelta(minutes=2))
    ran = call(shell, "status", "--json").json()
    assert ran["cells"] == {"queued": 5, "dispatched": 0, "running": 1, "suspect": 1, "paused": 0}
    assert ran["devices"] == {"idle": 1, "busy": 1, "excluded": 1}
    assert ran["broker"] == "none"
    assert ran["scheduler"]["running"] is True
    text = call(shell, "status").out
    assert "cells: 5 queued, 1 running, 1 suspect" in text
    assert "1 running, 5 queued" in text or "5 queued, 1 running" in text


def test_why_names_the_attempt_that_blocks_a_cell_and_keeps_the_clocks_apart(
    call, shell, database, scheduled
):
    stock(database, asked(("a",), {"cpu": {}, "gpu": {}}, name="first"), FLEET)
    by_target = {cell.target: cell for cell in cells(database)}
    job = dispatch(database, by_target["pocl-0"].cell_id)
    answer = call(shell, "show", "--why", by_target["host-cpu"].cell_id, "--json").json()
    assert answer["lease"] == job.attempt_id
    assert answer["job_s"] is None
    assert answer["queue_s"] >= 0
    (busy,) = [text for text in answer["blocks"] if "host-cpu is busy" in text]
    assert f"on pocl-0, which excludes it with attempt {job.attempt_id}" in busy
    text = call(shell, "show", "--why", by_target["pocl-0"].cell_id).out
    assert f"attempt {job.attempt_id} runs on pocl-0" in text
    assert "job clock: 0:0" in text
    assert "counts towards no limit" in text


def test_why_says_that_nobody_schedules(call, shell, database):
    stock(database, asked(tuple("abcd")), FLEET)
    answer = call(shell, "show", "--why", cells(database)[2].cell_id, "--json").json()
    assert (answer["position"], answer["eta_s"]) == (2, None)
    assert any("`farm submit` schedules" in text for text in answer["blocks"])


def test_why_gives_the_place_in_line_and_an_eta(call, shell, database, scheduled):
    stock(database, asked(tuple("abcd"), name="mine"), FLEET)
    stock(database, asked(("x",), name="peer"), FLEET)
    stock(database, asked(("y",), name="urgent", priority=1), FLEET)
    third = cells(database)[2]
    answer = call(shell, "show", "--why", third.cell_id, "--json").json()
    assert answer["position"] == 4, "two of its own, one in turn, one that is urgent"
    assert answer["eta_s"] == pytest.approx(4 * third.expected_s, rel=0.1)


@pytest.mark.parametrize(
    ("prepare", "said"),
    {
        "paused": (
            lambda s, c: steering_requests.pause(s, "test", now()),
            "is paused; continue with: farm queue resume test",
        ),
        "quarantine": (
            lambda s, c: steering_requests.quarantine(s, "host-cpu", "loud fan", now()),
            "host-cpu is in quarantine (loud fan)",
        ),
        "cooling": (
            lambda s, c: s.get_one(tables.Device, "host-cpu").sqlmodel_update(
                {"rests_until": now() + timedelta(seconds=90)}
            ),
            "host-cpu cools down for",
        ),
        "absent": (
            lambda s, c: s.get_one(tables.Device, "host-cpu").sqlmodel_update({"present": False}),
            "host-cpu is absent",
        ),
        "draining": (
            lambda s, c: s.get_one(tables.Agent, "embedded").sqlmodel_update({"state": "draining"}),
            "agent embedded is draining",
        ),
        "retrying": (
            lambda s, c: s.get_one(tables.Cell, c).sqlmodel_update(
                {"not_before": now() + timedelta(seconds=60)}
            ),
            "its next attempt comes in",
        ),
        "parked": (
            lambda s, c: s.get_one(tables.Campaign, 1).sqlmodel_update({"parked": True}),
            "no process waits for campaign test",
        ),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why_names_what_holds_a_cell(call, shell, database, prepare, said):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    with database.write() as session:
        prepare(session, cell.cell_id)
    ran = call(shell, "show", "--why", cell.cell_id)
    assert ran.code == 0
    assert said in ran.out


def test_why_of_an_ended_cell_is_its_end(call, shell, database):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    take_in(database, dispatch(database, cell.cell_id), Status.FAILED, ReasonCode.OUT_OF_MEMORY)
    assert "it has ended: failed: oom: because of oom" in call(shell, "show", "--why", cell.cell_id[:8]).out


def test_logs_tell_the_history_and_what_the_runner_wrote(call, shell, database):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        message = result(job).model_copy(update={"log_tail": "tuning\nmeasuring\n"})
        ingest.apply(session, message, now())
    text = call(shell, "show", "--logs", cell.cell_id, "-f").out
    words = [line.split()[2].rstrip(":") for line in text.splitlines() if not line.startswith("  |")]
    assert words == ["dispatched", "started", "finished"]
    assert "  | tuning\n  | measuring\n" in text
    lines = [
        json.loads(line) for line in call(shell, "show", "--logs", cell.cell_id, "--json").out.splitlines()
    ]
    assert [line.get("kind", "log") for line in lines] == ["dispatched", "started", "finished", "log"]


def test_a_cell_that_ends_while_it_is_followed_shows_its_last_events(
    call, shell, database, scheduled, monkeypatch
):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    looks = iter(range(9))

    def between(read):
        def ends_after_the_first_read(*arguments):
            found = read(*arguments)
            # The first is that of `farm show`, before it follows.
            if next(looks) == 1:
                with database.write() as session:
                    ingest.apply(session, result(job), now())
            return found

        return ends_after_the_first_read

    for name in ("cell", "history"):
        monkeypatch.setattr(Reading, name, between(getattr(Reading, name)))
    assert " finished" in call(shell, "show", "--logs", cell.cell_id, "-f").out


def test_logs_of_a_running_cell_show_what_its_agent_told_of_its_output(call, shell, database, scheduled):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        for start, text in ((0, "half "), (5, "way\nand"), (5, "way\nand on")):
            told = RunnerOutput(attempt_id=job.attempt_id, epoch=job.epoch, start=start, text=text)
            running_attempts.append(session, told)
    assert call(shell, "show", "--logs", cell.cell_id).out.endswith("  | half way\n  | and on\n")


@pytest.mark.parametrize(
    ("shown", "tail", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\nb\n", "a\nb\n", ""),
        ("a\nb\n", "b\nc\n", "c\n"),
        ("a\nb\n", "c\n", "c\n"),
    ],
)
def test_the_end_of_a_log_is_shown_without_what_was_shown(shown, tail, new):
    assert unseen(shown, tail) == new


def test_a_paused_campaign_says_so_until_it_is_resumed(call, shell, database):
    stock(database, asked(("a", "b")), FLEET)
    assert call(shell, "queue", "pause", "test").out == "test is paused; 2 cells wait\n"
    status = call(shell, "status", "--json").json()
    assert status["campaigns"][0]["paused"] is True
    assert status["cells"]["paused"] == 2
    assert "(paused)" in call(shell, "status").out
    assert call(shell, "queue", "resume", "test", "--json").json() == {
        "ref": "test",
        "paused": False,
        "waiting": 2,
    }
    unknown = call(shell, "queue", "pause", "tset")
    assert (unknown.code, unknown.err) == (2, "error: no campaign 'tset'; did you mean 'test'?\n")


def test_priority_of_a_campaign_and_of_a_cell(call, shell, database):
    stock(database, asked(("a", "b")), FLEET)
    _, second = cells(database)
    assert call(shell, "queue", "priority", "test", "7").out == "test: priority 7 for 2 cells\n"
    assert call(shell, "queue", "priority", second.cell_id, "--json", "--", "-3").json()["cells"] == 1
    assert [cell.rank for cell in cells(database)] == [-7, 3]
    assert call(shell, "status", "--json").json()["campaigns"][0]["priority"] == 7
    assert call(shell, "queue", "priority", "test", "101").code == 2


def test_retry_puts_failed_cells_back_with_all_their_attempts(call, shell, database):
    stock(database, asked(("a", "b", "c")), FLEET)
    a, b, c = cells(database)
    take_in(database, dispatch(database, a.cell_id), Status.FAILED, ReasonCode.WRONG_OUTPUT)
    take_in(database, dispatch(database, b.cell_id))
    call(shell, "cancel", c.cell_id)
    assert call(shell, "retry", "test", "--failed").out == "test: 1 cell queued again\n"
    assert [cell.state for cell in cells(database)] == ["queued", "done", "cancelled"]
    assert call(shell, "retry", "test", "--json").json() == {"ref": "test", "retried": 1}
    assert [cell.state for cell in cells(database)] == ["queued", "done", "queued"]
    assert call(shell, "retry", b.cell_id).out.endswith("no cell to retry\n")
    take_in(database, dispatch(database, a.cell_id))
    assert [row["status"] for row in call(shell, "results", "--format", "json").json()] == [
        "done", "done", "queued",
    ]  # fmt: skip
    with database.read() as session:
        counted = [row.counted for row in session.exec(select(tables.Result))]
    assert sorted(counted) == [False, True, True], "the first end of `a` is evidence only"


def test_devices_are_quarantined_released_and_cooled(call, shell, database):
    stock(database, asked(("m",)), FLEET)
    assert "is in quarantine" in call(shell, "devices", "quarantine", "gpu-0", "--reason", "loud").out
    with database.read() as session:
        assert session.get_one(tables.Device, "gpu-0").quarantine_text == "loud"
    assert call(shell, "devices", "release", "gpu-0", "--json").json() == {
        "device": "gpu-0", "action": "release",
    }  # fmt: skip
    assert "rests 2.5 s" in call(shell, "devices", "cooldown", "gpu-*", "--seconds", "2.5").out
    wrong = call(shell, "devices", "release", "gpu-1")
    assert (wrong.code, wrong.err) == (2, "error: no device is called 'gpu-1'; did you mean 'gpu-0'?\n")
    assert call(shell, "devices", "release").code == 2
    assert "never ran" in call(shell, "devices", "history", "gpu-0").out
    with database.write() as turn:
        recoveries.begin(turn, LostDevice("gpu-0", "embedded", "device_faults"), now())
        recoveries.end(turn, LostDevice("gpu-0", "embedded", "device_faults"), "failed", "no power", now())
    history = call(shell, "devices", "history", "gpu-*").out
    assert all(part in history for part in ("gpu-0", "device faults", "failed", "no power"))
    few = call(shell, "devices", "noise", "gpu-0", "--sessions", "2")
    assert (few.code, few.err) == (2, "error: --sessions is between 3 and 50, not 2\n")


def test_watch_ends_with_the_campaign_and_says_what_it_came_to(call, shell, database):
    stock(database, asked(("m",)), FLEET)
    (cell,) = cells(database)
    take_in(database, dispatch(database, cell.cell_id))
    ran = call(shell, "status", "--watch")
    assert ran.code == 0
    assert "1/1 right" in ran.out


def test_watch_of_a_campaign_that_nobody_runs_says_so(call, shell, database):
    stock(database, asked(("m",)), FLEET)
    ran = call(shell, "status", "--watch", "test")
    assert ran.code == 4
    assert "the campaign has not ended, and no scheduler is running; `farm submit`" in ran.err


def test_why_says_which_cell_has_the_device_that_one_of_its_class_may_not_take(
    call, shell, database, scheduled
):
    wanted = asked(("m",), {"gpu": {}}, devices=(DeviceSelector(kind="gpu", count=2),))
    stock(database, wanted, (GPU, GPU.model_copy(update={"device_id": "gpu-1", "exclusion_group": "gpu-1"})))
    first, second = cells(database)
    take_in(database, dispatch(database, first.cell_id, "gpu-0"))
    change(database, tables.Device, "gpu-1", present=False)
    answer = call(shell, "show", "--why", second.cell_id, "--json").json()
    assert answer["eta_s"] is None
    assert answer["blocks"] == [
        f"gpu-0 is that of cell {first.cell_id}, and each cell of a class wants another device",
        "gpu-1 is absent: its agent's last hello did not name it",
    ]


def test_a_class_cell_shows_its_class_until_it_has_a_device(call, shell, database):
    wanted = asked(("m",), {"gpu": {}}, devices=(DeviceSelector(kind="gpu", count=1),))
    stock(database, wanted, FLEET)
    (cell,) = cells(database)
    assert "in the queue of any:kind=gpu/gpu" in call(shell, "show", "--why", cell.cell_id).out
    take_in(database, dispatch(database, cell.cell_id, "gpu-0"))
    assert call(shell, "results", "--format", "json").json()[0]["device"] == "gpu-0"
