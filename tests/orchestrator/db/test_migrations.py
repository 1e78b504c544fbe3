from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory

from orchestrator import ingest
from orchestrator.db import migrate as migration
from orchestrator.db.session import Database
from orchestrator.errors import UnreachableError
from tests.orchestrator.stocked import cells, dispatch, new_database, result, stock


def test_the_scripts_make_exactly_the_tables_of_the_code(database):
    assert migration.pending_changes(database) == []


def test_the_newest_script_is_the_one_the_code_expects():
    scripts = ScriptDirectory.from_config(migration.alembic_config())
    assert scripts.get_heads() == [migration.HEAD]


def test_a_difference_would_be_found(database):
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_cell_pick")
    assert migration.pending_changes(database)


def test_a_newer_database_is_refused_in_one_line(database):
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UnreachableError, match=r"revision 9999.*upgrade the farm"):
        migration.migrate(database)


def test_migrating_a_database_with_data_copies_it_first_and_keeps_the_data(tmp_path, monkeypatch):
    database = new_database(tmp_path)
    stock(database)
    head = migration.HEAD
    add_revision(monkeypatch, tmp_path)
    migration.migrate(database)
    assert migration.revision(database) == "9998"
    assert len(cells(database)) == 1
    with database.read() as session:
        columns = session.connection().exec_driver_sql("PRAGMA table_info(cell)").fetchall()
        assert "mood" in {column[1] for column in columns}
        assert session.connection().exec_driver_sql("PRAGMA foreign_key_check").fetchall() == []
        assert session.connection().exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()
    (backup,) = tmp_path.glob(f"farm.db.backup-{head}-*")
    copy = Database.connect(backup)
    assert migration.revision(copy) == head
    assert len(cells(copy)) == 1
    copy.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path, monkeypatch):
    database = new_database(tmp_path)
    stock(database)
    head = migration.HEAD
    add_revision(monkeypatch, tmp_path, "raise RuntimeError('half way')")
    with pytest.raises(RuntimeError, match="half way"):
        migration.migrate(database)
    assert migration.revision(database) == head
    assert len(cells(database)) == 1
    database.close()


def test_a_database_of_the_first_release_keeps_its_campaigns(tmp_path):
    database = Database.connect(tmp_path / "farm.db")
    upgrade(database, "0001")
    with database.engine.execution_options(farm_write=True).begin() as connection:
        for statement in FIRST_RELEASE:
            connection.exec_driver_sql(statement)
    migration.migrate(database)
    assert migration.revision(database) == migration.HEAD
    assert migration.pending_changes(database) == []
    (cell,) = cells(database)
    assert (cell.model, cell.state) == ("m", "queued")
    job = dispatch(database, cell.cell_id)
    with database.write() as session:
        assert ingest.apply(session, result(job), datetime.now(UTC)) == "counted"
    database.close()


FIRST_RELEASE = Path(__file__).with_name("first_release.sql").read_text().split(";\n")[:-1]
"""Rows as the first release wrote them."""


def upgrade(database, revision):
    config = migration.alembic_config()
    with database.engine.execution_options(farm_write=True).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def add_revision(monkeypatch, folder, then="pass"):
    """Pretend that the code has a newer revision, which rebuilds the table `cell`."""
    scripts = folder / "more"
    scripts.mkdir()
    (scripts / "v9998_mood.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision = '9998'\ndown_revision = '{migration.HEAD}'\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('cell', recreate='always') as batch:\n"
        "        batch.add_column(sa.Column('mood', sa.String(), nullable=True))\n"
        f"    {then}\n"
    )
    plain = migration.alembic_config

    def with_more():
        config = plain()
        own = f"{config.get_main_option('script_location')}/versions"
        config.set_main_option("version_locations", f"{own}:{scripts}")
        return config

    monkeypatch.setattr(migration, "alembic_config", with_more)
    monkeypatch.setattr(migration, "HEAD", "9998")
