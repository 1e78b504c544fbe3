"""The journal survives kill -9: what was accepted is known, what was spooled is kept until its receipt."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from agent.attempt.journal import Journal
from agent.wire.messages import JobResult, Reason, ReasonCode, Status
from tests.agent.embedded_agent import job

MODEL = ("0" * 64, 1)


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def result_of(spec) -> JobResult:
    return JobResult(
        attempt_id=spec.attempt_id,
        epoch=spec.epoch,
        cell_id=spec.cell_id,
        device_id=spec.device_id,
        status=Status.FAILED,
        reason=Reason(code=ReasonCode.CRASH, text="boom"),
    )


def test_attempt_goes_from_open_to_spooled_to_delivered(journal):
    spec = job(MODEL)
    assert journal.state_of(spec.attempt_id) is None
    journal.accept(spec)
    assert journal.open_jobs() == [spec]
    journal.spool(result_of(spec))
    assert journal.open_jobs() == []
    assert journal.spooled() == [result_of(spec)]
    journal.delivered(spec.attempt_id)
    assert journal.spooled() == []
    assert journal.state_of(spec.attempt_id) == "delivered"


def test_attempt_is_accepted_once(journal):
    spec = job(MODEL)
    journal.accept(spec)
    with pytest.raises(sqlite3.IntegrityError):
        journal.accept(spec)


def test_first_result_of_an_attempt_is_kept(journal):
    spec = job(MODEL)
    journal.accept(spec)
    journal.spool(result_of(spec))
    journal.spool(result_of(spec).model_copy(update={"status": Status.CANCELLED}))
    assert journal.spooled() == [result_of(spec)]


def test_receipt_before_a_result_changes_nothing(journal):
    spec = job(MODEL)
    journal.accept(spec)
    journal.delivered(spec.attempt_id)
    assert journal.open_jobs() == [spec]


def test_what_was_accepted_survives_a_kill(tmp_path):
    path = tmp_path / "journal.db"
    spec = job(MODEL)
    script = (
        "import os, signal, sys; from pathlib import Path; from agent.attempt.journal import Journal\n"
        "from agent.wire.messages import JobSpec\n"
        "Journal(Path(sys.argv[1])).accept(JobSpec.model_validate_json(sys.argv[2]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path), spec.model_dump_json()], check=False)
    assert killed.returncode == -signal.SIGKILL
    journal = Journal(path)
    assert journal.open_jobs() == [spec]
    journal.close()


def test_a_commit_is_on_the_disk_when_it_returns_whatever_sqlite_was_built_with(tmp_path, monkeypatch):
    connect, opened = sqlite3.connect, []

    def connect_to_a_sqlite_that_never_waits(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA synchronous = OFF")
        opened.append(connection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_to_a_sqlite_that_never_waits)
    journal = Journal(tmp_path / "journal.db")
    full = 2
    assert [connection.execute("PRAGMA synchronous").fetchone() for connection in opened] == [(full,)]
    journal.close()


def test_the_newest_epoch_of_each_device_is_known_after_a_restart(tmp_path):
    journal = Journal(tmp_path / "journal.db")
    for device, epoch in (("host-cpu", 3), ("gpu-0", 8), ("host-cpu", 5)):
        journal.accept(job(MODEL, device=device, epoch=epoch))
    journal.close()
    journal = Journal(tmp_path / "journal.db")
    assert journal.epochs() == {"host-cpu": 5, "gpu-0": 8}
    journal.close()


def test_an_attempt_whose_epoch_cannot_be_written_is_not_accepted(tmp_path, journal):
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON epoch BEGIN SELECT RAISE(ABORT, 'full'); END")
    spec = job(MODEL)
    with pytest.raises(sqlite3.Error, match="full"):
        journal.accept(spec)
    assert journal.state_of(spec.attempt_id) is None
    assert journal.open_jobs() == []
