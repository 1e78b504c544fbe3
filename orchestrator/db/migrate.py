"""Migrates a database to the newest revision with Alembic, after a backup."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, inspect

from orchestrator.config.clock import utc_now
from orchestrator.db.engine.dialects import WRITE_OPTION
from orchestrator.db.engine.locks import MIGRATION_LOCK
from orchestrator.db.engine.sessions import Database
from orchestrator.db.tables import metadata
from orchestrator.errors import UnreachableError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD: Final = "0022"
"""The newest revision; a test compares it with the scripts. Alembic is imported only where it differs."""


def migrate(database: Database, *, upgrade: bool = True) -> None:
    """Create the tables of the code, or upgrade to them; a database with data is copied to `farm.db.backup-*`
    before. Two processes that start at once migrate one after the other.

    Without `upgrade`, tables are created and never changed. Raises `UnreachableError`, and changes nothing,
    where the database is newer than this program, older than the first migration, or not to be upgraded.
    """
    found = revision(database)
    if found == HEAD:
        return
    from alembic import command  # noqa: PLC0415  # slow to import, and needed once in a database's life

    config = alembic_config()
    known = revisions()
    # Revisions have four digits each, so that comparing texts compares numbers.
    if found is not None and found < (oldest := min(known)):
        raise UnreachableError(
            f"the database {database.name} has revision {found}, of a version before the first release; this "
            f"version upgrades databases from {oldest} on: use an empty FARM_HOME or database, or see "
            "'Upgrades' in docs/storage.md"
        )
    if found is not None and found not in known:
        raise UnreachableError(
            f"the database {database.name} has revision {found}, which this version of the farm does not "
            f"know (newest: {HEAD}); upgrade the farm, or use another database"
        )
    if found is not None and not upgrade:
        raise UnreachableError(
            f"the database {database.name} has revision {found}, this version of the farm {HEAD}; the server "
            "brings it up to date: install this version there, and start farm lab serve again"
        )
    if found is not None:
        database.backup(_backup_path(database.backups, found))
    with database.engine.execution_options(**{WRITE_OPTION: True}).connect() as connection:
        _suspend_foreign_keys(connection)
        # One transaction for all steps: a migration that fails half way leaves the database as it was.
        with connection.begin():
            if database.is_postgresql:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            config.attributes["connection"] = connection
            # Another process may have made the tables while this one waited for its turn.
            if found is None and not inspect(connection).has_table("alembic_version"):
                metadata.create_all(connection)
                command.stamp(config, "head")
            else:
                command.upgrade(config, "head")


def revision(database: Database) -> str | None:
    """Return the revision of the tables; None for a new database."""
    with database.read() as session:
        connection = session.connection()
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return None if found is None else str(found)


def revisions() -> set[str]:
    """Return the revisions that this release upgrades, and `HEAD`."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415  # see `migrate`

    return {script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()}


def alembic_config() -> Config:
    """Alembic's configuration for the migrations beside this module."""
    from alembic.config import Config  # noqa: PLC0415  # see `migrate`

    config = Config()
    # Alembic reads options with interpolation, for which a single % begins a name.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def pending_changes(database: Database) -> list[object]:
    """Differences between the tables in code and in the database, as `alembic check` finds them."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415  # see `migrate`
    from alembic.migration import MigrationContext  # noqa: PLC0415  # see `migrate`

    with database.engine.connect() as connection, warnings.catch_warnings():
        context = MigrationContext.configure(connection, opts={"compare_type": True, "render_as_batch": True})
        return list(compare_metadata(context, metadata))


def _backup_path(folder: Path, found: str) -> Path:
    stamp = utc_now().strftime("%Y%m%dT%H%M%S%f")
    return folder / f"farm.db.backup-{found}-{stamp}"


def _suspend_foreign_keys(connection: Connection) -> None:
    """Switch foreign keys off until it is closed: rebuilding a table would delete its child rows."""
    raw = connection.connection.driver_connection
    if raw is not None and connection.dialect.name == "sqlite":
        # Through the driver: SQLAlchemy would begin a transaction, in which SQLite ignores this pragma.
        raw.execute("PRAGMA foreign_keys = OFF")
        # However the migration ends, nobody gets this connection from the pool.
        connection.detach()
