from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlmodel import select

from agent.wire.measurement import Measurement
from agent.wire.plan import MeasurePlan
from orchestrator.db import migrate as migration
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.db.write import ingest
from orchestrator.errors import UnreachableError
from tests.orchestrator.stocked import cells, dispatch, result, stock


def test_the_scripts_make_exactly_the_tables_of_the_code(database):
    assert migration.pending_changes(database) == []


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
    head = migration.HEAD
    add_revision(monkeypatch, tmp_path)
    with pytest.raises(UnreachableError, match=rf"revision {head}.*start farm serve again"):
        migration.migrate(own, upgrade=False)
    assert list(tmp_path.glob("farm.db.backup-*")) == []
    migration.migrate(own)
    assert migration.revision(own) == "9998"
    assert len(cells(own)) == 1
    with own.read() as session:
        connection = session.connection()
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


def test_a_database_of_the_first_release_keeps_its_campaigns(empty):
    upgrade(empty, "0001")
    with empty.engine.execution_options(farm_write=True).begin() as connection:
        for statement in FIRST_RELEASE:
            connection.exec_driver_sql(statement)
    migration.migrate(empty)
    assert migration.revision(empty) == migration.HEAD
    assert migration.pending_changes(empty) == []
    (cell,) = cells(empty)
    assert (cell.model, cell.state) == ("m", "queued")
    job = dispatch(empty, cell.cell_id)
    assert job.plan == MeasurePlan(min_blocks=4, max_blocks=4, warmup_runs=2)
    with empty.write() as session:
        assert ingest.apply(session, result(job), datetime.now(UTC)) == "counted"


@pytest.mark.parametrize(
    ("trust", "ci95", "quality", "grade"),
    [
        ({"verdict": "invalid", "reasons": ["asleep"]}, [1.0, 1.01], {"void": ["asleep"]}, "void"),
        (
            {"verdict": "suspect", "reasons": ["drift"], "seen": ["swap"]},
            [1.0, 1.1],
            {"facts": ["drift"]},
            "fair",
        ),
        ({"verdict": "trusted", "unseen": ["steal"]}, [1.0, 1.01], {"unseen": ["steal"]}, "good"),
        (None, None, None, "noisy"),
    ],
)
def test_verdicts_of_trust_become_qualities_and_grades(empty, trust, ci95, quality, grade):
    upgrade(empty, migration.HEAD)
    stock(empty)
    with empty.write() as turn:
        message = result(dispatch(empty, cells(empty)[0].cell_id))
        assert ingest.apply(turn, message, datetime.now(UTC)) == "counted"
    old = json.loads(message.measurement.model_dump_json())
    old["latency_ms"]["ci95"], old["trust"] = ci95, trust
    del old["quality"]
    with empty.engine.execution_options(farm_write=True).begin() as connection:
        connection.exec_driver_sql("ALTER TABLE cell DROP COLUMN refines")
        connection.exec_driver_sql("ALTER TABLE result DROP COLUMN grade")
        connection.exec_driver_sql("ALTER TABLE result ADD COLUMN trust VARCHAR")
        connection.execute(text("UPDATE result SET measurement = :old"), {"old": json.dumps(old)})
        connection.exec_driver_sql("UPDATE campaign SET reuse = 'max-age:60+suspect'")
        connection.exec_driver_sql("UPDATE cell SET reuse = 'same-fingerprint+suspect'")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0020'")
    upgrade(empty, migration.HEAD)
    with empty.read() as session:
        (row,) = session.exec(select(tables.Result)).all()
        rules = {r for t in (tables.Campaign, tables.Cell) for r in session.exec(select(t.reuse))}
    stored = json.loads(row.measurement)
    assert "trust" not in stored
    assert {k: v for k, v in (stored.get("quality") or {}).items() if v} == _kept(trust, quality)
    assert Measurement.model_validate(stored).latency_ms.ci95 == (None if ci95 is None else tuple(ci95))
    assert row.grade == grade
    assert rules == {"max-age:60", "same-fingerprint"}


def _kept(trust, quality):
    """What is expected of a quality, with what was seen and not seen."""
    listed = {name: trust[name] for name in ("seen", "unseen") if trust and name in trust}
    return {**listed, **(quality or {})}


def restore(database, backup):
    """As docs/storage.md says."""
    url = database.engine.url.set(drivername="postgresql").render_as_string()
    command = ["pg_restore", "--clean", f"--dbname={url}", str(backup)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request, tmp_path):
    """A database without tables, on each engine."""
    where = tmp_path / "farm.db"
    if request.param == "postgresql":
        where = request.getfixturevalue("postgres_url")
    opened = Database.connect(where, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def own(empty):
    """A database of this release, on each engine."""
    migration.migrate(empty)
    return empty


FIRST_RELEASE = Path(__file__).with_name("first_release.sql").read_text().split(";\n")[:-1]
"""Rows as the first release wrote them."""


def upgrade(database, revision):
    config = migration.alembic_config()
    with database.engine.execution_options(farm_write=True).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def add_revision(monkeypatch, folder, then="pass"):
    """Pretend that the code has a newer revision, which on SQLite rebuilds the table `cell`."""
    scripts = folder / "more"
    scripts.mkdir()
    (scripts / "v9998_mood.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision = '9998'\ndown_revision = '{migration.HEAD}'\n"
        "def upgrade():\n"
        "    recreate = 'always' if op.get_bind().dialect.name == 'sqlite' else 'auto'\n"
        "    with op.batch_alter_table('cell', recreate=recreate) as batch:\n"
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
