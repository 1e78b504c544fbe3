from __future__ import annotations

import subprocess

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from orchestrator.db import migrate as migration
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UnreachableError
from tests.needs import REPOSITORY
from tests.orchestrator.db import tables_of_0022
from tests.orchestrator.db.future_revision import add_revision
from tests.orchestrator.stocked import cells, dispatch, stock


def test_a_new_database_has_exactly_the_tables_of_the_code(own):
    assert (migration.revision(own), migration.pending_changes(own)) == (migration.HEAD, [])


def test_the_scripts_lead_from_the_first_release_to_exactly_the_tables_of_the_code(empty):
    with empty.engine.begin() as connection:
        tables_of_0022.create(connection)
    assert migration.revision(empty) == "0022"
    migration.migrate(empty)
    assert (migration.revision(empty), migration.pending_changes(empty)) == (migration.HEAD, [])


def test_the_newest_script_is_the_one_the_code_expects():
    scripts = ScriptDirectory.from_config(migration.alembic_config())
    assert scripts.get_heads() == [migration.HEAD]


def test_a_missing_index_is_found_as_a_difference(database):
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_cell_pick")
    assert migration.pending_changes(database)


def test_a_newer_database_is_refused_in_one_line(own):
    stock(own)
    with own.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UnreachableError, match=r"revision 9999.*upgrade the farm"):
        migration.migrate(own)
    assert len(cells(own)) == 1


def test_migrating_a_database_with_data_copies_it_first_and_keeps_the_data(own, tmp_path, monkeypatch):
    stock(own)
    job = dispatch(own, cells(own)[0].cell_id)
    head = migration.HEAD
    add_revision(monkeypatch, tmp_path)
    with pytest.raises(UnreachableError, match=rf"revision {head}.*start farm lab serve again"):
        migration.migrate(own, upgrade=False)
    assert list(tmp_path.glob("farm.db.backup-*")) == []
    migration.migrate(own)
    assert migration.revision(own) == "9998"
    assert len(cells(own)) == 1
    with own.read() as session:
        connection = session.connection()
        assert session.get(tables.Attempt, job.attempt_id) is not None, "a row that refers to a rebuilt one"
        assert "mood" in {column["name"] for column in inspect(connection).get_columns("cell")}
        if not own.is_postgresql:
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall() == []
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    (backup,) = tmp_path.glob(f"farm.db.backup-{head}-*")
    if own.is_postgresql:
        restore(own, backup)
        monkeypatch.undo()
        assert (migration.revision(own), len(cells(own))) == (head, 1)
        assert migration.pending_changes(own) == []
        return
    copy = Database.connect(backup)
    assert (migration.revision(copy), len(cells(copy))) == (head, 1)
    copy.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(own, tmp_path, monkeypatch):
    stock(own)
    head = migration.HEAD
    add_revision(monkeypatch, tmp_path, "raise RuntimeError('half way')")
    with pytest.raises(RuntimeError, match="half way"):
        migration.migrate(own)
    assert migration.revision(own) == head
    assert len(cells(own)) == 1
    assert migration.pending_changes(own) == []
    with own.read() as session:
        if not own.is_postgresql:
            assert session.connection().exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


@pytest.mark.parametrize("revision", ["0001", "0021"])
def test_a_database_from_before_the_first_release_is_refused_and_not_changed(own, tmp_path, revision):
    stock(own)
    with own.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")
    for upgrade in (True, False):
        with pytest.raises(UnreachableError, match=rf"revision {revision}, .* from 0022 on: use an empty"):
            migration.migrate(own, upgrade=upgrade)
    assert (migration.revision(own), len(cells(own))) == (revision, 1)
    assert migration.pending_changes(own) == []
    assert list(tmp_path.glob("farm.db.backup-*")) == []


def test_the_first_migration_has_the_revision_of_the_last_step_before_the_release(own, tmp_path):
    """A database that came by the steps has its tables, and so the farm has nothing to do with it."""
    assert ScriptDirectory.from_config(migration.alembic_config()).get_base() == "0022"
    playbook = (REPOSITORY / "ansible" / "restore.yml").read_text(encoding="utf-8")
    assert ">= '0022'" in playbook


def restore(database, backup):
    """Restore a backup by the commands of docs/storage.md."""
    url = database.engine.url.set(drivername="postgresql").render_as_string()
    command = ["pg_restore", "--clean", f"--dbname={url}", str(backup)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request, tmp_path):
    """Open a database without tables, on each engine."""
    where = tmp_path / "farm.db"
    if request.param == "postgresql":
        where = request.getfixturevalue("postgres_url")
    opened = Database.connect(where, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def own(empty):
    """Open a database of this release, on each engine."""
    migration.migrate(empty)
    return empty
