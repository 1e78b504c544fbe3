from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import StatementError
from sqlmodel import select

from orchestrator.db import tables
from orchestrator.db.engine.dialects import explain, insert_missing, pipelined, postgresql_engine
from orchestrator.db.engine.sessions import Database, RefusedError
from orchestrator.db.migrate import migrate
from orchestrator.errors import UnreachableError
from tests.orchestrator.stocked import cells, new_database, stock


def test_every_connection_is_durable_checked_and_patient(database):
    with database.read() as session:
        pragma = {
            name: session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragma == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_write_waits_for_another_programs_lock_instead_of_failing(database):
    stock(database)
    other = sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, other.rollback)
    release.start()
    with database.write() as session:
        session.exec(select(tables.Campaign)).one().name = "renamed"
    release.join()
    other.close()
    with database.read() as session:
        assert session.exec(select(tables.Campaign)).one().name == "renamed"


def test_a_reader_is_not_held_up_by_a_writer(database):
    stock(database)
    with database.write() as session:
        session.exec(select(tables.Campaign)).one().name = "unseen"
        session.flush()
        with database.read() as reader:
            assert reader.exec(select(tables.Campaign)).one().name == "test"


def test_an_interrupt_waits_for_the_end_of_the_transaction(database):
    stock(database)

    def rename_under_fire():
        with database.write() as session:
            # To this thread: the kernel may give a signal of the process to a thread of the test runner.
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            session.exec(select(tables.Campaign)).one().name = "renamed"

    with pytest.raises(KeyboardInterrupt):
        rename_under_fire()
    with database.read() as session:
        assert session.exec(select(tables.Campaign)).one().name == "renamed"


def test_two_transactions_insert_the_same_rows_and_both_commit(postgres_url, tmp_path):
    farm = Database.connect(postgres_url, tmp_path)
    migrate(farm)
    rows = [{"line": name} for name in ("a", "b")]

    def rival():
        with farm.write() as session:
            insert_missing(session, tables.Pool, [*rows, {"line": "c"}])

    with farm.write() as session:
        insert_missing(session, tables.Pool, rows)
        thread = threading.Thread(target=rival)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "it waits for the row that may yet be rolled back"
    thread.join()
    with farm.read() as session:
        assert set(session.exec(select(tables.Pool.line))) == {"a", "b", "c"}
    farm.close()


def test_writers_take_turns_so_that_neither_waits_for_what_the_other_holds(any_database):
    begun, lines = threading.Event(), []

    def rival():
        begun.set()
        with any_database.write() as session:
            lines.extend(session.exec(select(tables.Pool.line)).all())
            insert_missing(session, tables.Pool, [{"line": "c"}])

    thread = threading.Thread(target=rival)
    with any_database.write() as session:
        insert_missing(session, tables.Pool, [{"line": "a"}])
        thread.start()
        begun.wait()
        thread.join(0.3)
        assert thread.is_alive()
        insert_missing(session, tables.Pool, [{"line": "b"}])
    thread.join()
    assert sorted(lines) == ["a", "b"], "it began where the first had ended"


def test_what_the_database_refuses_at_the_end_leaves_the_next_transaction_alone(any_database):
    row = {"sha256": "0" * 64, "size_bytes": 2**64, "added_at": datetime.now(UTC)}
    for _ in range(3):
        with pytest.raises(RefusedError), any_database.write() as turn:
            turn.insert_at_end(tables.Model, [row])
    with any_database.write() as turn:
        turn.insert_at_end(tables.Model, [row | {"size_bytes": 1}])
    with any_database.read() as session:
        assert session.exec(select(tables.Model.size_bytes)).all() == [1]


def test_what_the_database_refuses_early_is_said_though_the_rest_was_under_way(any_database):
    """The answer to the refused statement is there before the next one is sent, and ends the transaction."""
    row = {"sha256": "0" * 64, "size_bytes": 2**64, "added_at": datetime.now(UTC)}

    def add_both():
        with any_database.write() as turn, pipelined(turn):
            turn.add(tables.Model(**row))
            turn.flush()
            time.sleep(0.2)
            turn.add(tables.Model(**row | {"sha256": "1" * 64, "size_bytes": 1}))
            turn.commit()

    with pytest.raises((RefusedError, StatementError), match=r"(?i)out of range|too large"):
        add_both()
    with any_database.write() as turn:
        turn.insert_at_end(tables.Model, [row | {"size_bytes": 1}])


def test_an_exception_rolls_everything_back(database):
    stock(database)

    def rename_and_fail():
        with database.write() as session:
            session.exec(select(tables.Campaign)).one().name = "gone"
            session.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rename_and_fail()
    with database.read() as session:
        assert session.exec(select(tables.Campaign)).one().name == "test"


def test_moments_keep_their_zone_and_naive_ones_are_refused(database):
    stock(database)
    east = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5)))
    with database.write() as session:
        session.exec(select(tables.Campaign)).one().created_at = east
    with database.read() as session:
        found = session.exec(select(tables.Campaign)).one().created_at
    assert found == east
    assert found.tzinfo is UTC
    with pytest.raises(StatementError, match="without a time zone"), database.write() as session:
        session.exec(select(tables.Campaign)).one().created_at = datetime(2026, 1, 2)  # noqa: DTZ001  # the fault


@pytest.mark.parametrize("content", [b"not a database, whatever it is called" * 100], ids=["text"])
def test_a_file_that_is_no_database_is_named_in_one_line(tmp_path, content):
    path = tmp_path / "farm.db"
    path.write_bytes(content)
    broken = Database.connect(path)
    with pytest.raises(UnreachableError, match=r"farm\.db is no intact database"), broken.read() as session:
        session.exec(select(tables.Campaign)).all()
    broken.close()


@pytest.mark.slow
def test_many_processes_may_open_a_new_farm_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.config.home import FarmHome\n"
        "from orchestrator.farm import Farm\n"
        "with Farm.open(FarmHome(Path(sys.argv[1]))) as farm: print(len(farm.reading.campaigns()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "home")]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in started:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, "0"), err


def test_a_backup_holds_what_the_database_held(tmp_path, database):
    stock(database)
    target = tmp_path / "copy.db"
    database.backup(target)
    copy = Database.connect(target)
    assert len(cells(copy)) == 1
    assert copy.integrity() == "ok"
    copy.close()


def test_a_new_database_has_a_place_for_everything(tmp_path):
    database = new_database(tmp_path)
    assert stock(database)
    database.close()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('connection failed: FATAL:  database "farm" does not exist', "create it with: createdb"),
        ('connection failed: FATAL:  role "eve" does not exist', "check FARM_DATABASE_URL"),
        ('relation "cell" does not exist', "check FARM_DATABASE_URL, or restore a backup"),
    ],
)
def test_the_remedy_is_that_of_what_is_missing_in_postgresql(text, remedy):
    engine = postgresql_engine(make_url("postgresql://host/farm"))
    said = explain(engine, "farm", text)
    assert said.endswith(f"; {remedy}")
    assert " ".join(text.split()) in said
