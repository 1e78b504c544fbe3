"""A backup takes the place of the database, wholly or not at all, and lets in nobody who was revoked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from agent.wire.envelope import SigningKey
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.db import tables
from orchestrator.db.devices import credentials
from orchestrator.db.engine import copies
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import HEAD, migrate
from orchestrator.db.scheduling import ingest
from orchestrator.errors import FarmError, UsageError
from orchestrator.maintenance.check import backup
from orchestrator.maintenance.restore import restoring
from orchestrator.scheduling.lock import SchedulerLock
from orchestrator.trust import revocations
from orchestrator.trust.users import Users
from tests import needs
from tests.orchestrator.asked import asked
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.stocked import cells, dispatch, result, stock
from tests.orchestrator.trust.lab import trusted_lab


@pytest.fixture
def home(tmp_path: Path) -> FarmHome:
    (tmp_path / "home").mkdir(mode=0o700)
    return FarmHome(tmp_path / "home")


def invite(database: Database, token: str, agent: str) -> None:
    with database.write() as turn:
        credentials.add_invitation(
            turn, token, agent, utc_now(), valid=timedelta(hours=1), overlap=timedelta()
        )


def enrol(database: Database, agent: str) -> None:
    with database.write() as turn:
        assert credentials.add(turn, agent, SigningKey.new().public, agent * 2, "password", utc_now())


def test_a_restored_backup_says_who_gets_in_and_lets_in_nobody_who_was_revoked(
    any_database: Database, home: FarmHome, tmp_path: Path
) -> None:
    database, users = any_database, Users(any_database)
    ana, eve = users.add("ana"), users.add("eve")
    enrol(database, "rack-1")
    enrol(database, "rack-2")
    invite(database, "once", "rack-3")
    backup(database, tmp_path / "copy")
    users.revoke("eve")
    new = users.add("new")
    with database.write() as turn:
        credentials.revoke_all(turn, "rack-2", utc_now())
        assert credentials.use_invitation(turn, "once", utc_now()) is not None
        for row in turn.exec(select(tables.Credential).where(tables.Credential.agent_id == "rack-1")):
            turn.delete(row)
    with restoring(database, home, tmp_path / "copy", utc_now()) as found:
        assert found.stay_out == ("agent rack-2", "one-time token of agent rack-3", "user eve")
        assert found.valid_again == ("agent rack-1",)
        assert found.shut_out == ("user new",)
        assert users.with_token(new) is not None, "so far nothing was changed"
        kept = found.restore(utc_now())
    assert users.with_token(ana).name == "ana"
    assert users.with_token(new) is None
    with pytest.raises(UsageError, match="was revoked"):
        users.with_token(eve)
    with database.read() as session:
        assert set(credentials.owners(session, utc_now()).values()) == {"agent rack-1", "user ana"}
        assert not credentials.is_invited(session, "once", utc_now())
    assert database.is_postgresql == (kept is None)
    if kept is not None:
        with closing(sqlite3.connect(kept)) as former:
            assert ("new",) in former.execute("SELECT name FROM user_token").fetchall()


def test_a_damaged_database_is_replaced_and_the_list_beside_the_keys_is_what_counts(
    any_database: Database, home: FarmHome, tmp_path: Path
) -> None:
    database, users = any_database, Users(any_database)
    eve = users.add("eve")
    users.add("ana")
    backup(database, tmp_path / "copy")
    users.revoke("eve")
    revocations.reconcile(database, home.keys, utc_now())
    if database.path is None:
        with database.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE user_token CASCADE")
    else:
        database.close()
        database.path.write_bytes(b"no database" * 1000)
    with restoring(database, home, tmp_path / "copy", utc_now()) as found:
        assert not found.is_read
        assert (found.stay_out, found.valid_again) == (("user eve",), ("user ana",))
        found.restore(utc_now())
    with pytest.raises(UsageError, match="was revoked"):
        users.with_token(eve)


def test_a_backup_that_cannot_be_restored_whole_changes_nothing(
    any_database: Database, home: FarmHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_PATIENCE_S", 0.1)
    database, users = any_database, Users(any_database)
    ana = users.add("ana")
    backup(database, tmp_path / "copy")
    new = users.add("new")
    content = (tmp_path / "copy").read_bytes()
    (tmp_path / "part").write_bytes(content[: len(content) // 2])
    (tmp_path / "other").write_bytes(b"no backup")
    for name in ("part", "other", "missing"):
        with pytest.raises(FarmError, match=name), restoring(database, home, tmp_path / name, utc_now()):
            pass
    with restoring(database, home, tmp_path / "copy", utc_now()) as found:
        if database.is_postgresql:
            with found.copy.unpacked.open("a") as script:
                script.write("SELECT no_such_function();\n")
            with pytest.raises(FarmError, match="which is as it was"):
                found.restore(utc_now())
        else:
            with closing(sqlite3.connect(database.path)) as reader:
                reader.execute("SELECT count(*) FROM user_token").fetchone()
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM user_token").fetchone()
                with pytest.raises(FarmError, match="in use by another process"):
                    found.restore(utc_now())
    assert [users.with_token(token).name for token in (ana, new)] == ["ana", "new"]


def test_a_farm_that_runs_a_newer_backup_and_what_is_none_are_refused(home: FarmHome, tmp_path: Path) -> None:
    database = Database.connect(home.database)
    migrate(database)
    backup(database, tmp_path / "copy")
    with (
        SchedulerLock.acquire(home.scheduler_lock),
        pytest.raises(FarmError, match="the farm runs"),
        restoring(database, home, tmp_path / "copy", utc_now()),
    ):
        pass
    with closing(sqlite3.connect(tmp_path / "copy")) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()
    with (
        pytest.raises(FarmError, match=f"revision 9999, and this version of the farm restores .* to {HEAD}"),
        restoring(database, home, tmp_path / "copy", utc_now()),
    ):
        pass
    with closing(sqlite3.connect(tmp_path / "copy")) as partial:
        partial.execute(f"UPDATE alembic_version SET version_num = '{HEAD}'")
        partial.execute("DROP TABLE credential")
        partial.commit()
    with closing(sqlite3.connect(tmp_path / "another")) as another:
        another.execute("CREATE TABLE notes (text)")
    for name, said in (("copy", "table credential"), ("another", "another is no backup of a farm")):
        with pytest.raises(FarmError, match=said), restoring(database, home, tmp_path / name, utc_now()):
            pass
    database.close()


@pytest.mark.parametrize("spooled", [False, True])
def test_attempts_that_a_backup_has_under_way_are_nobodys_fault_and_no_epoch_is_used_again(
    any_database: Database, home: FarmHome, tmp_path: Path, spooled: bool
) -> None:
    database = any_database
    stock(database, asked(("a", "b"), {"cpu": {}}))
    ended, open_cell = cells(database)
    done = dispatch(database, ended.cell_id)
    with database.write() as turn:
        assert ingest.apply(turn, result(done), utc_now()) == "counted"
    under_way = dispatch(database, open_cell.cell_id)
    backup(database, tmp_path / "copy")
    with database.write() as turn:
        assert ingest.apply(turn, result(under_way), utc_now()) == "counted"
        newest = turn.device(under_way.device_id).epoch = 1000
    with restoring(database, home, tmp_path / "copy", utc_now()) as found:
        found.restore(utc_now())
    with database.read() as session:
        stopped = session.exec(select(tables.Attempt.attempt_id).where(tables.Attempt.stop_asked)).all()
        assert stopped == [under_way.attempt_id]
        assert session.get_one(tables.Device, under_way.device_id).epoch > newest
    with database.write() as turn:
        if spooled:
            assert ingest.apply(turn, result(under_way), utc_now()) == "counted"
        assert ingest.recover(turn, utc_now()) == (not spooled)
    with database.read() as session:
        attempt = session.get_one(tables.Attempt, under_way.attempt_id)
        assert (attempt.state, attempt.reason_code) == (
            ("done", "completed") if spooled else ("cancelled", "interrupted")
        )
    assert [cell.state for cell in cells(database)] == ["done", "done" if spooled else "queued"]


def test_the_verb_asks_for_a_decision_and_tells_what_it_did(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.farm("db", "backup", "copy.db").code == 0
    undecided = shell.farm("db", "restore", "copy.db")
    assert (undecided.code, "--dry-run and --yes" in undecided.err) == (2, True)
    looked = shell.farm("db", "restore", "copy.db", "--dry-run", "--json").json()
    assert (looked["restored"], looked["compared"], looked["kept"]) == (False, True, None)
    restored = shell.farm("db", "restore", "copy.db", "--yes")
    assert restored.code == 0, restored.err
    assert "copy.db is restored\nthe former database is " in restored.out
    assert shell.farm("db", "check").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("state", ["dispatched", "running"])
def test_what_was_under_way_in_a_backup_is_measured_again_and_loses_no_retry(
    tmp_path: Path, state: str
) -> None:
    with trusted_lab(tmp_path, needs.redis_server(), tls=False) as lab:
        lab.write_campaign(2.0 if state == "running" else 0.0)
        path = tmp_path / "models.yaml"
        # One failed attempt would end the cell.
        path.write_text(path.read_text().replace("defaults:\n", "defaults:\n  retry: {times: 0}\n"))
        if state == "dispatched":
            lab.agent.stop()
        lab.farm("submit", "models.yaml", "--detach")
        lab.until(lambda: lab.attempts() == [(1, state)], f"an attempt is {state}")
        lab.farm("db", "backup", "copy.db")
        if state == "dispatched":
            lab.agent = lab.start_agent(lab.state)
        lab.until(lambda: lab.attempts() == [(1, "done")], "it ended")
        lab.farm("submit", "models.yaml", "--force")  # the agent sees a newer epoch than the backup has
        assert lab.serve.stop() == 0
        lab.farm("db", "restore", "copy.db", "--yes")
        assert lab.attempts() == [(1, state)]
        # The silence of an attempt that has ended is noticed at once, not after five minutes.
        lab.environment["FARM_LOST_S"] = "1"
        lab.start_serve()
        ended = "SELECT state, reason_code FROM cell WHERE ended_at IS NOT NULL"
        lab.until(lambda: lab.rows(ended), "the cell has ended")
        assert lab.rows(ended) == [("done", "completed")]
        assert lab.attempts() == [(1, "cancelled"), (2, "done")]
        assert lab.rows("SELECT count(*) FROM result WHERE counted") == [(1,)]
